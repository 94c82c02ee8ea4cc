//! Access control lists behave as on the kernel's tmpfs: the same commands run on both, with the
//! same answers.

use folioswap_acceptance::{mount, mount::Mount, programs, skip};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A tmpfs of the kernel, unmounted when the test ends.
struct KernelTmpfs(PathBuf);

impl KernelTmpfs {
    fn new() -> Result<Self, String> {
        let path = PathBuf::from(format!("/var/tmp/folioswap-acc-acl-{}", std::process::id()));
        fs::create_dir_all(&path).map_err(|why| why.to_string())?;
        let mounted = KernelTmpfs(path);
        let done = Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(&mounted.0).output();
        match done {
            Ok(done) if done.status.success() => Ok(mounted),
            Ok(done) => Err(String::from_utf8_lossy(&done.stderr).into_owned()),
            Err(why) => Err(why.to_string()),
        }
    }
}

impl Drop for KernelTmpfs {
    fn drop(&mut self) {
        drop(Command::new("umount").arg(&self.0).stderr(std::process::Stdio::null()).status());
        drop(fs::remove_dir(&self.0));
    }
}

/// The output of these commands in this directory, errors and statuses included.
fn said(directory: &Path, commands: &str) -> String {
    let script = format!("exec 2>&1\nset +e\numask 022\n{commands}");
    let output = Command::new("sh").args(["-c", &script]).current_dir(directory).output().expect("a shell");
    let directory = directory.to_str().expect("UTF-8");
    String::from_utf8_lossy(&output.stdout).replace(directory, "DIR")
}

/// Each command begins in the directory that the ones before have left.
const COMMANDS: &[&str] = &[
    // A list and the mode.
    "touch a; getfacl -n a; setfacl -m u:1000:rw a; getfacl -n a; stat -c %a a",
    "chmod 640 a; getfacl -n a; chmod g= a; getfacl -n a; chmod 4755 a; getfacl -n a; stat -c %a a",
    "setfacl -m g:7:r,m::rwx a; stat -c %a a; setfacl -x u:1000 a; setfacl -x g:7 a; getfacl -n a; stat -c %a a",
    "setfacl -b a; getfacl -n a; setfacl -b a; stat -c %a a",
    "setfacl -m u::rw,g::r,o::- a; stat -c %a a; python3 -c 'import os; print(sorted(os.listxattr(\"a\")))'",
    // Inheritance, and the cases where the umask counts.
    "mkdir -m 2750 d; setfacl -d -m u:1000:rwx,g:1001:r-x d; getfacl -n d; stat -c %a d",
    "umask 077; mkdir d/sub; touch d/sub/f; mkfifo d/p; ln -s f d/l; for x in d/sub d/sub/f d/p; do getfacl -n $x; stat -c '%a %g' $x; done; stat -c %a d/l",
    "umask 027; touch f; mkdir e; mkfifo p; stat -c %a f e p; umask 0; touch d/open; mkdir -m 700 d/narrow; getfacl -n d/open d/narrow",
    "mkdir g; setfacl -d -m u::rwx,g::r,o::- g; touch g/x; mkdir g/y; getfacl -n g/x g/y; setfacl -k g; touch g/z; stat -c %a g/z",
    // Permission checks.
    "chmod 755 .; echo secret >s; chmod 600 s; setpriv --reuid 1000 --regid 1000 --clear-groups cat s; echo $?",
    "setfacl -m u:1000:r s; setpriv --reuid 1000 --regid 1000 --clear-groups cat s; setpriv --reuid 1000 --regid 1000 --clear-groups sh -c 'echo x >>s'; echo $?",
    "chmod g= s; setpriv --reuid 1000 --regid 1000 --clear-groups cat s; echo $?; setfacl -b s; setfacl -m g:1001:rw,m::rw s; setpriv --reuid 1002 --regid 1001 --clear-groups cat s; setpriv --reuid 1002 --regid 1002 --groups 1001 cat s; setpriv --reuid 1002 --regid 1002 --clear-groups cat s; echo $?",
    "setpriv --reuid 1000 --regid 1000 --clear-groups setfacl -m u:1000:rw s; echo $?; mkdir w; setfacl -m u:1000:rwx w; setpriv --reuid 1000 --regid 1000 --clear-groups touch w/mine; stat -c '%u %g %a' w/mine; setpriv --reuid 1001 --regid 1001 --clear-groups touch w/not; echo $?",
    // The set-group-id bit is cleared when the owner, who is not of the group, sets a list.
    "touch q; chown 1000:5 q; chmod 2755 q; setpriv --reuid 1000 --regid 1000 --clear-groups setfacl -m u:7:r q; stat -c %a q; chmod 2755 q; setpriv --reuid 1000 --regid 1000 --groups 5 setfacl -m u:8:r q; stat -c %a q; setfacl -m u:9:r q; stat -c %a q",
    // Values that are no list, or not supported here.
    r#"python3 - <<'PYTHON'
import errno, os, struct
def value(*entries, version=2):
    return struct.pack("<I", version) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
N = 0xffffffff
minimal = [(1, 6, N), (4, 4, N), (32, 0, N)]
def attempt(path, name, bytes_):
    try:
        os.setxattr(path, "system.posix_acl_" + name, bytes_)
        said = "ok"
    except OSError as error:
        said = errno.errorcode[error.errno]
    print(path, name, said, oct(os.stat(path).st_mode), sorted(os.listxattr(path)))
open("v", "w").close()
os.mkdir("vd")
os.symlink("v", "vl")
for bytes_ in (b"", b"\2\0\0", value(), value(version=1), value(*minimal), value(*minimal)[:-1], value(*minimal[:2]),
        value(*minimal, (32, 0, N)), value((1, 6, N), (2, 7, 5), *minimal[1:]), value((1, 9, N), *minimal[1:]), value(*reversed(minimal)),
        value((1, 6, N), (2, 7, 5), (4, 4, N), (16, 5, N), (32, 0, N)), value()):
    for path in ("v", "vd"):
        for name in ("access", "default"):
            attempt(path, name, bytes_)
for name in ("access", "default"):
    for act in (lambda n: os.removexattr("v", n), lambda n: print(os.getxattr("v", n)), lambda n: os.setxattr("vl", n, value(*minimal), follow_symlinks=False)):
        try:
            act("system.posix_acl_" + name)
            print("ok")
        except OSError as error:
            print(errno.errorcode[error.errno])
PYTHON"#,
    // Copies, and names that move.
    "cp -a d copy; getfacl -n $(find copy | sort); mv copy moved; getfacl -n moved/sub; rsync -aA d/ synced/ && getfacl -n $(find synced | sort)",
];

#[test]
fn access_control_lists_are_as_on_tmpfs() {
    needs_fuse!();
    if let Some(missing) =
        ["setfacl", "setpriv", "python3", "rsync"].into_iter().find(|name| programs::which(name).is_none())
    {
        skip!("{missing} is not installed");
    }
    let kernels = match KernelTmpfs::new() {
        Ok(mounted) => mounted,
        Err(why) => skip!("tmpfs cannot be mounted: {why}"),
    };
    let mount = Mount::new("acl", &["--memory", "32M"]);
    let mut lists = 0;
    for commands in COMMANDS {
        let (wanted, got) = (said(&kernels.0, commands), said(mount.path(), commands));
        assert_eq!(got, wanted, "{commands}");
        lists += wanted.matches("user:1000:").count() + wanted.matches("EINVAL").count();
    }
    assert!(lists > 30, "only {lists} of the answers say anything of a list: the kernel's tmpfs has none?");
}
