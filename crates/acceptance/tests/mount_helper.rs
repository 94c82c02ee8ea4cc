//! mount(8), `mount -a`, remount and findmnt(8) with `mount.folioswap`, and the units for systemd.
//!
//! mount(8) looks for helpers in `/sbin` alone, so the tests put a link there while they run, in a
//! mount namespace of their own where `/sbin` and `/etc/fstab` are theirs.

use folioswap_acceptance::mount;
use folioswap_acceptance::programs::{crate_directory, folioswap, which};
use folioswap_acceptance::skip;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output};

/// A directory of one test, removed when it ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(format!("/var/tmp/folioswap-acc-helper-{name}-{}", std::process::id()));
        fs::create_dir_all(path.join("mnt")).expect("a directory");
        fs::create_dir_all(path.join("sbin")).expect("a directory");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Runs a script in a mount namespace where `mount.folioswap` is in `/sbin` and `/etc/fstab` has
/// this line. `$M` is an empty directory.
fn with_helper(name: &str, fstab: &str, script: &str) -> Output {
    let scratch = Scratch::new(name);
    let place = scratch.0.display().to_string();
    fs::write(scratch.0.join("fstab"), fstab.replace("$M", &format!("{place}/mnt"))).expect("written");
    for (program, link) in [("mount.folioswap", folioswap()), ("folioswap", folioswap())] {
        symlink(link, scratch.0.join("sbin").join(program)).expect("a link");
    }
    // Helpers of others are not needed: mount(8) itself and the tools are in /usr/bin.
    let prepared = format!(
        "set -e\nM={place}/mnt\nF={}\nmount --make-rprivate /\nmount --bind {place}/fstab /etc/fstab\n\
         mount --bind {place}/sbin \"$(realpath /sbin)\"\ntrap 'umount \"$M\" 2>/dev/null || true' EXIT\n{script}\n",
        folioswap().display()
    );
    Command::new("unshare").args(["--mount", "sh", "-c", &prepared]).output().expect("unshare(1)")
}

macro_rules! only_where_mounts_work {
    () => {
        if let Some(why) = mount::missing() {
            skip!("{why}");
        }
        if which("unshare").is_none() || which("findmnt").is_none() {
            skip!("unshare(1) or findmnt(8) is missing");
        }
    };
}

#[track_caller]
fn done(output: &Output) -> String {
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{errors}");
    said.into_owned()
}

const FSTAB: &str =
    "folioswap $M folioswap memory=64M,size=256M,huge=always,swap=\"zram,prio=1\",noexec,nofail 0 0\n";

#[test]
fn a_line_of_fstab_is_mounted_once_remounted_and_found() {
    only_where_mounts_work!();
    let script = "\
mount \"$M\"
findmnt -n -o FSTYPE,SOURCE,OPTIONS \"$M\"
mount -a
echo mounts $(grep -c \" $M \" /proc/self/mountinfo)
head -c 32M /dev/zero > \"$M/zeroes\"; head -c 16M /dev/urandom | tr '\\0-\\177' 'a' > \"$M/file\"; sum=$(md5sum < \"$M/file\")
stat -f -c '%b blocks of %S' \"$M\"
mount -t folioswap -o remount,memory=48M,size=1G folioswap \"$M\"
stat -f -c '%b blocks of %S' \"$M\"
$F stats \"$M\" --json | tr -d ' ' | grep -E '\"(limit|size)_bytes\"'
test \"$sum\" = \"$(md5sum < \"$M/file\")\" && echo same
umount \"$M\"";
    let said = done(&with_helper("fstab", FSTAB, script));
    let found = said.lines().next().unwrap_or_default();
    for word in ["fuse", "folioswap", "noexec"] {
        assert!(found.contains(word), "{word} in {said}");
    }
    assert!(said.contains("mounts 1"), "{said}");
    assert!(said.contains("65536 blocks of 4096") && said.contains("262144 blocks of 4096"), "{said}");
    assert!(
        said.contains("\"limit_bytes\":50331648") && said.contains("\"size_bytes\":1073741824"),
        "{said}"
    );
    assert!(said.trim_end().ends_with("same"), "{said}");
}

#[test]
fn wrong_options_are_named_and_nothing_is_mounted() {
    only_where_mounts_work!();
    let cases = [
        ("memory=64M,sise=1G", "sise"),
        ("size=1G", "--memory"),
        ("memory=much", "not a size"),
        ("memory=4M", "too small"),
        ("memory", "give it a value"),
        ("memory=64M,swap=\"zram", "quote"),
        ("memory=64M,swap=tape", "tape"),
        ("memory=64M,mode=rwx", "octal"),
        ("memory=64M,huge=sometimes", "sometimes"),
        ("remount,memory=64M", "not a folioswap mount"),
    ];
    for (options, word) in cases {
        let script = format!(
            "mount -i -t none none \"$M\" 2>/dev/null || true\n/sbin/mount.folioswap folioswap \"$M\" -o '{options}'"
        );
        let output = with_helper("wrong", "", &script);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(word), "{options}: {said}");
    }
    // `mount -f` judges and mounts nothing.
    let script =
        "/sbin/mount.folioswap folioswap \"$M\" -f -o memory=64M; ! grep \" $M \" /proc/self/mountinfo";
    done(&with_helper("fake", "", script));
}

/// A daemon in the foreground tells its service manager when the mount is there.
#[test]
fn the_service_manager_is_told_when_the_mount_is_there() {
    if let Some(why) = mount::missing() {
        skip!("{why}");
    }
    let scratch = Scratch::new("notify");
    let socket = scratch.0.join("socket");
    let manager = std::os::unix::net::UnixDatagram::bind(&socket).expect("a socket");
    manager.set_read_timeout(Some(std::time::Duration::from_secs(60))).expect("set");
    let point = scratch.0.join("mnt");
    let mut daemon = Command::new(folioswap())
        .arg("mount")
        .arg(&point)
        .args(["--memory", "64M", "--foreground"])
        .env("NOTIFY_SOCKET", &socket)
        .spawn()
        .expect("started");
    let mut text = [0; 4096];
    let length = manager.recv(&mut text).expect("told");
    let text = String::from_utf8_lossy(&text[..length]).into_owned();
    assert!(text.contains("READY=1") && text.contains("STATUS=mounted on"), "{text}");
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("readable");
    assert!(mounts.contains(&format!(" {} ", point.display())), "it is there by then");
    // SAFETY: kill has no memory effects; the process is our unreaped child.
    assert_eq!(unsafe { libc::kill(daemon.id() as i32, libc::SIGTERM) }, 0);
    assert!(daemon.wait().expect("ended").success());
}

#[test]
fn the_units_are_as_systemd_wants_them() {
    if which("systemd-analyze").is_none() {
        skip!("systemd-analyze is missing");
    }
    let units = crate_directory().join("../../contrib/systemd");
    let mut count = 0;
    for entry in fs::read_dir(units).expect("units").flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|extension| extension != "service" && extension != "mount") {
            continue;
        }
        // Programs are where a package puts them, and man pages come with it.
        let scratch = Scratch::new("units");
        let name = path.file_name().expect("a name").to_string_lossy().replace("@.", "@mnt-build.");
        let text = fs::read_to_string(&path).expect("readable");
        let text = text.replace("/usr/bin/folioswap", &folioswap().display().to_string());
        let copy = scratch.0.join(&name);
        fs::write(&copy, text).expect("written");
        let output =
            Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&copy).output().expect("run");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && !said.contains(&name), "{name}: {said}");
        count += 1;
    }
    assert_eq!(count, 5);
}
