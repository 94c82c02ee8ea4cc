//! The start of a mount, its refusals, and its end, whatever ends it.

use crate::{error, new_file};
use folioswap_acceptance::programs::{self, refused, run_folioswap};
use folioswap_acceptance::{mount, mount::Mount, skip};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn a_killed_daemon_leaves_a_clear_end() {
    needs_fuse!();
    let mut mount = Mount::new("killed", &["--memory", "32M"]);
    let file = new_file(&mount.file("file"));
    file.write_all_at(b"x", 0).expect("write");
    mount.signal(libc::SIGKILL);
    mount.wait();
    let start = Instant::now();
    assert_eq!(error(fs::read_dir(mount.path())), libc::ENOTCONN);
    assert_eq!(error(file.write_at(b"y", 0)), libc::ENOTCONN);
    assert_eq!(error(File::create(mount.file("other"))), libc::ENOTCONN);
    assert!(start.elapsed() < Duration::from_secs(2), "accesses hang");
    let path = mount.path().to_str().expect("UTF-8").to_owned();
    refused(
        &run_folioswap(&["mount", &path, "--memory", "32M"]),
        125,
        &["daemon is gone", "folioswap umount"],
    );
    drop(file);
    let cleaned = run_folioswap(&["umount", &path]);
    assert!(cleaned.status.success(), "{cleaned:?}");
    assert!(!mount.is_mounted() && mount.path().is_dir());
}

#[test]
fn signals_and_umount_end_it() {
    needs_fuse!();
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut mount = Mount::new("signal", &["--memory", "32M"]);
        fs::write(mount.file("a"), b"a").expect("write");
        mount.signal(signal);
        assert_eq!(mount.wait().code(), Some(0));
        assert!(!mount.is_mounted());
    }
    // In use, umount refuses. A signal detaches the mount, and a process that has a file of it open
    // goes on.
    let mut mount = Mount::new("busy", &["--memory", "32M"]);
    let path = mount.path().to_str().expect("UTF-8").to_owned();
    let file = new_file(&mount.file("file"));
    file.write_all_at(b"kept", 0).expect("write");
    refused(&run_folioswap(&["umount", &path]), 125, &["in use", "--lazy"]);
    refused(&run_folioswap(&["mount", &path, "--memory", "32M"]), 125, &["already", "folioswap umount"]);
    mount.signal(libc::SIGTERM);
    let start = Instant::now();
    while mount.is_mounted() {
        assert!(start.elapsed() < Duration::from_secs(5));
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut found = [0; 4];
    file.read_exact_at(&mut found, 0).expect("read");
    assert_eq!(&found, b"kept");
    drop(file);
    assert_eq!(mount.wait().code(), Some(0));
}

/// A relative swap file lies where the caller meant, not in the daemon's working directory.
#[test]
fn a_relative_swap_directory_is_the_callers() {
    needs_fuse!();
    let place = PathBuf::from(format!("/var/tmp/folioswap-acc-relative-{}", std::process::id()));
    fs::create_dir_all(place.join("mount")).expect("mkdir");
    fs::create_dir_all(place.join("swap here")).expect("mkdir");
    let both: [&[&str]; 2] = [&["--swap-dir", "swap here"], &["--swap", "zram", "--swap", "file:swap here"]];
    let outputs = both.map(|words| {
        let mut command = Command::new(programs::folioswap());
        let output = command.args(["mount", "mount", "-m", "32M"]).args(words).current_dir(&place).output();
        drop(run_folioswap(&["umount", place.join("mount").to_str().expect("UTF-8")]));
        output.expect("folioswap can be run")
    });
    drop(fs::remove_dir_all(&place));
    for output in outputs {
        assert!(output.status.success(), "{output:?}");
    }
}

/// Files under a mount stay when the mount ends, and so do mounts on top of it.
#[test]
fn the_end_of_a_mount_is_its_own() {
    needs_fuse!();
    let place = PathBuf::from(format!("/var/tmp/folioswap-acc-under-{}", std::process::id()));
    let other = place.join("mount");
    fs::create_dir_all(&other).expect("mkdir");
    // The script has a mount table of its own, so that nothing is left behind; each path is mounted
    // on in layers.
    let script = "set -e
        trap 'kill -9 $first $second $third 2>/dev/null || :' EXIT
        mounted() { for i in $(seq 200); do grep -q \" $1 .* folioswap \" /proc/self/mountinfo && return; sleep 0.05; done; false; }
        mount -t tmpfs below $2; echo kept > $2/file
        $1 mount $2 -m 32M --foreground & first=$!
        mounted $2
        echo over > $2/file; $1 umount $2; wait $first; cat $2/file
        $1 mount $2 -m 32M --foreground & second=$!
        mounted $2
        kill -TERM $second; wait $second; cat $2/file
        $1 mount $2 -m 32M --foreground & third=$!
        mounted $2
        echo third > $2/file
        mount -t tmpfs above $2; echo above > $2/file
        kill -TERM $third; sleep 0.3; cat $2/file
        umount $2; cat $2/file; $1 umount $2; wait $third; cat $2/file";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script, "sh"])
        .arg(programs::folioswap())
        .arg(&other)
        .output()
        .expect("unshare");
    drop(fs::remove_dir_all(&place));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "kept\nkept\nabove\nthird\nkept\n", "{output:?}");
}

/// The usual way: the command returns, and a daemon goes on.
#[test]
fn it_goes_on_in_the_background() {
    needs_fuse!();
    let path = PathBuf::from(format!("/var/tmp/folioswap-acc-background-{}", std::process::id()));
    fs::create_dir_all(&path).expect("mkdir");
    let words = ["mount", path.to_str().expect("UTF-8"), "--memory", "32M", "--mode", "700"];
    let start = Instant::now();
    // The output is at its end when the command returns, although the daemon goes on.
    let output = run_folioswap(&words);
    let took = start.elapsed();
    let wrote = fs::write(path.join("a"), b"a");
    let mode = fs::metadata(&path).map(|found| found.permissions().mode() & 0o7777);
    let left = run_folioswap(&["umount", path.to_str().expect("UTF-8")]);
    drop(fs::remove_dir(&path));
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert!(took < Duration::from_secs(5), "it took {took:?}");
    wrote.expect("write");
    assert_eq!(mode.expect("stat"), 0o700);
    assert!(left.status.success(), "{left:?}");
    assert!(!path.exists(), "it was unmounted, so the directory could go");
}

#[test]
fn what_cannot_be_mounted_is_refused() {
    let place = PathBuf::from(format!("/var/tmp/folioswap-acc-refused-{}", std::process::id()));
    fs::create_dir_all(&place).expect("mkdir");
    let (directory, missing, file) =
        (place.to_str().expect("UTF-8"), place.join("missing"), place.join("file"));
    fs::write(&file, b"").expect("write");
    let (missing, file) = (missing.to_str().expect("UTF-8"), file.to_str().expect("UTF-8"));
    let refusals: [(&[&str], i32, &[&str]); 16] = [
        (&[missing, "-m", "64M"], 125, &["does not exist", "mkdir"]),
        (&[file, "-m", "64M"], 125, &["not a directory"]),
        (&[directory], 125, &["--memory"]),
        (&[directory, "-m", "16M"], 125, &["too small", "32"]),
        (&[directory, "-m", "900T"], 125, &["more than this machine's ram"]),
        (&[directory, "-m", "much"], 125, &["not a size"]),
        (&[directory, "-m", "64M", "--size", "0"], 125, &["--size", "4k"]),
        (&[directory, "-m", "64M", "--huge", "sometimes"], 125, &["within_size"]),
        (&[directory, "-m", "64M", "--mode", "999"], 125, &["octal"]),
        (&[directory, "-m", "64M", "--inodes", "0"], 125, &["--inodes"]),
        (&[directory, "-m", "64M", "--swap", "ram,size=900T"], 125, &["more than this machine's ram"]),
        (&[directory, "-m", "64M", "--swap", "zram", "--swap", "zram"], 125, &["given twice"]),
        (&[directory, "-m", "64M", "--swap", &format!("file:{file}")], 125, &["give it room first"]),
        (&[directory, "-m", "64M", "--swap", "zram", "--swap-max", "1G"], 125, &["--swap-max", "size=SIZE"]),
        (&[directory, "-m", "64M", "--swap-dir", missing], 125, &["--swap-dir", "--swap-max 0"]),
        (
            &[directory, "-m", "64M", "--swap", "file:/var/tmp", "--swap", "file:/var/tmp/."],
            125,
            &["one directory"],
        ),
    ];
    let results =
        refusals.map(|(words, status, said)| (run_folioswap(&[&["mount"], words].concat()), status, said));
    // A mount namespace with an empty /dev hides the device.
    let hidden = Command::new("unshare")
        .args(["-m", "sh", "-c", "mount -t tmpfs none /dev && exec \"$@\"", "sh"])
        .arg(programs::folioswap())
        .args(["mount", directory, "-m", "64M"])
        .output();
    let nothing = run_folioswap(&["umount", directory]);
    let gone = run_folioswap(&["umount", missing]);
    drop(fs::remove_dir_all(&place));
    for (output, status, said) in &results {
        refused(output, *status, said);
    }
    refused(&nothing, 125, &["not a folioswap mount"]);
    refused(&gone, 125, &["No such file"]);
    if mount::missing().is_none() {
        refused(&hidden.expect("unshare"), 125, &["/dev/fuse", "modprobe fuse"]);
    }
    // No mount of ours may be left.
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
    assert!(!mounts.contains(directory), "{mounts}");
}

/// Without root the mount goes through fusermount3.
#[test]
fn somebody_else_may_mount() {
    needs_fuse!();
    if programs::which("fusermount3").is_none() {
        skip!("fusermount3 (package fuse3) is not installed");
    }
    let path = PathBuf::from(format!("/var/tmp/folioswap-acc-other-{}", std::process::id()));
    fs::create_dir_all(&path).expect("mkdir");
    std::os::unix::fs::chown(&path, Some(65534), Some(65534)).expect("chown");
    // Other users may not enter the directory where the tests were built.
    let command = PathBuf::from(format!("/var/tmp/folioswap-acc-other-command-{}", std::process::id()));
    fs::copy(programs::folioswap(), &command).expect("a copy");
    fs::set_permissions(&command, fs::Permissions::from_mode(0o755)).expect("chmod");
    // A mount table of its own, in which every user may open the device, as udev sets it up.
    let prepare = "mknod -m 666 $0.fuse c 10 229 && mount --bind $0.fuse /dev/fuse && \
        exec setpriv --reuid=65534 --regid=65534 --clear-groups sh -c \"$2\" $0 $1";
    let script =
        "$0 mount $1 -m 64M --swap-max 0 && echo mine > $1/a && cat $1/a && stat -c %u $1/a && $0 umount $1";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", prepare])
        .args([&command, &path])
        .arg(script)
        .output();
    let output = output.expect("unshare");
    drop(fs::remove_file(command.with_extension("fuse")));
    drop(fs::remove_file(&command));
    drop(run_folioswap(&["umount", "--lazy", path.to_str().expect("UTF-8")]));
    drop(fs::remove_dir(&path));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "mine\n65534\n");
}
