//! The swap devices of a mount: every kind that `run` takes, in their order, and taken off while
//! the mount is in use.

use folioswap_acceptance::disk::{Directory, LoopDevice, Scratch};
use folioswap_acceptance::programs::{refused, run_folioswap};
use folioswap_acceptance::{mount, mount::Mount, need, skip};
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const FILES: &str = env!("CARGO_BIN_EXE_acc-tmpfs");
const MIB: u64 = 1 << 20;

macro_rules! needs_fuse {
    () => {
        if let Some(reason) = mount::missing() {
            skip!("{reason}");
        }
    };
}

#[track_caller]
fn done(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Starts `fill`, `check` or `map` of a file of so many mebibytes.
fn whole_file(action: &str, file: &Path, mebibytes: u64) -> Child {
    let words = [action, text(file), &mebibytes.to_string(), "7"];
    Command::new(FILES).args(words).stdin(Stdio::null()).spawn().expect("acc-tmpfs")
}

#[track_caller]
fn ends_well(mut child: Child) {
    assert!(child.wait().expect("wait").success());
}

/// A device of the table: its name, type, and bytes in use.
type Row = (String, String, u64);

fn swaps(mount: &Mount) -> Vec<Row> {
    let path = CString::new(mount.path().as_os_str().as_bytes()).expect("a path");
    let mut bytes = vec![0_u8; 64 << 10];
    // SAFETY: both names are C strings, and the buffer is as long as said.
    let length = unsafe {
        libc::getxattr(path.as_ptr(), c"folioswap.swaps".as_ptr(), bytes.as_mut_ptr().cast(), bytes.len())
    };
    assert!(length > 0, "{}", std::io::Error::last_os_error());
    let table = String::from_utf8_lossy(&bytes[..length as usize]).into_owned();
    let row = |line: &str| {
        let words: Vec<&str> = line.split('\t').collect();
        (words[0].to_owned(), words[1].to_owned(), words[3].parse::<u64>().expect("KiB") << 10)
    };
    table.lines().skip(1).map(row).collect()
}

fn used(mount: &Mount, name: &str) -> u64 {
    let rows = swaps(mount);
    rows.iter().find(|row| row.0 == name).unwrap_or_else(|| panic!("{name} is not among {rows:?}")).2
}

fn prepared(name: &str, bytes: u64) -> Scratch {
    let file = Scratch::new(name);
    done(&run_folioswap(&["mkswap", text(&file.0), "--size", &bytes.to_string()]));
    file
}

/// A prepared file, a block device, plain RAM, a directory and compressed RAM are each used by
/// priority. Three of them are then taken off while everything is read, and are released.
#[test]
fn every_kind_of_device_in_its_order_and_taken_off() {
    needs_fuse!();
    need!("losetup");
    let (file, backing, directory) =
        (prepared("prepared", 18 * MIB), Scratch::file("block", 18 * MIB), Directory::new("kinds"));
    let block = LoopDevice::new(&backing.0).expect("a loop device");
    done(&run_folioswap(&["mkswap", text(&block.path)]));
    let devices = [
        format!("file:{},prio=5", text(&file.0)),
        format!("file:{},prio=4,discard", text(&block.path)),
        "ram,size=8M,prio=3".to_owned(),
        "zram,prio=2".to_owned(),
        format!("file:{},size=256M,prio=1", text(&directory.0)),
    ];
    let mut words = vec!["--memory", "32M", "--size", "1G", "--huge", "always"];
    devices.iter().for_each(|device| words.extend(["--swap", device.as_str()]));
    let mount = Mount::new("kinds", &words);
    let content = mount.file("content");
    ends_well(whole_file("fill", &content, 112));
    let names = [text(&file.0), text(&block.path), "ram0", "zram", text(&directory.0)];
    let found = swaps(&mount);
    assert_eq!(found.iter().map(|row| row.0.as_str()).collect::<Vec<_>>(), names);
    assert_eq!(
        found.iter().map(|row| row.1.as_str()).collect::<Vec<_>>(),
        ["file", "block", "ram", "zram", "file"]
    );
    for (row, least) in found.iter().zip([15 * MIB, 15 * MIB, 7 * MIB, 4 * MIB, 4 * MIB]) {
        assert!(row.2 >= least, "{row:?} of {found:?}");
    }
    // The mount alone holds the file.
    let held = run_folioswap(&["mkswap", "--force", text(&file.0)]);
    assert!(!held.status.success() && String::from_utf8_lossy(&held.stderr).contains("uses it"), "{held:?}");
    ends_well(whole_file("map", &content, 112));
    let reader = whole_file("check", &content, 112);
    for name in &names[..3] {
        done(&run_folioswap(&["swapoff", text(mount.path()), name]));
    }
    ends_well(reader);
    let left = swaps(&mount);
    assert_eq!(left.iter().map(|row| row.0.as_str()).collect::<Vec<_>>(), &names[3..]);
    done(&run_folioswap(&["mkswap", "--force", text(&file.0)]));
    ends_well(whole_file("check", &content, 112));
    // A device that cannot be taken off stays, and the message says why.
    refused(
        &run_folioswap(&["swapoff", text(mount.path()), names[0]]),
        125,
        &["no swap device", "it has zram, "],
    );
    done(&run_folioswap(&["swapoff", text(mount.path()), "zram"]));
    refused(&run_folioswap(&["swapoff", text(mount.path()), names[4]]), 125, &["there is room for only"]);
    assert!(used(&mount, names[4]) > 32 * MIB);
    ends_well(whole_file("check", &content, 112));
    refused(&run_folioswap(&["swapoff", "/", "zram"]), 125, &["not a folioswap mount"]);
}

#[test]
fn equal_priorities_take_turns_and_a_space_is_given_back() {
    needs_fuse!();
    let (one, two) = (prepared("one", 66 * MIB), Directory::new("turns"));
    let devices = [format!("file:{}", text(&one.0)), format!("file:{},size=64M", text(&two.0))];
    let mount = Mount::new("turns", &["-m", "32M", "--swap", &devices[0], "--swap", &devices[1]]);
    let content = mount.file("content");
    ends_well(whole_file("fill", &content, 80));
    let (first, second) = (used(&mount, text(&one.0)), used(&mount, text(&two.0)));
    assert!(first.abs_diff(second) <= 12 * MIB && first > 16 * MIB, "{first} {second}");
    ends_well(whole_file("check", &content, 80));
    fs::remove_file(&content).expect("unlink");
    let start = Instant::now();
    while used(&mount, text(&one.0)) + used(&mount, text(&two.0)) > 0 {
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", swaps(&mount));
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_export_of_an_nbd_server() {
    needs_fuse!();
    need!("nbdkit");
    let place = Directory::new("nbd");
    let (disk, socket) = (place.0.join("disk"), place.0.join("socket"));
    fs::File::create(&disk).and_then(|file| file.set_len(256 * MIB)).expect("a file");
    let mut server = Command::new("nbdkit")
        .args(["-f", "--exit-with-parent", "-U", text(&socket), "file", text(&disk)])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("nbdkit");
    let start = Instant::now();
    while UnixStream::connect(&socket).is_err() {
        assert!(start.elapsed() < Duration::from_secs(10), "nbdkit does not listen");
        std::thread::sleep(Duration::from_millis(5));
    }
    let device = format!("nbd+unix:///?socket={},prio=0", text(&socket));
    let words = ["--memory", "32M", "--swap", "zram,prio=1", "--swap", &device];
    let mount = Mount::new("nbd", &words);
    let content = mount.file("content");
    ends_well(whole_file("fill", &content, 96));
    let export = swaps(&mount).into_iter().find(|row| row.1 == "nbd").expect("the export");
    assert!(export.2 > 8 * MIB, "{export:?}");
    ends_well(whole_file("check", &content, 96));
    // The contents shrink to a size that fits into memory and the compressed store.
    fs::OpenOptions::new()
        .write(true)
        .open(&content)
        .and_then(|file| file.set_len(16 * MIB))
        .expect("truncate");
    done(&run_folioswap(&["swapoff", text(mount.path()), &export.0]));
    drop(server.kill().and_then(|()| server.wait()));
    ends_well(whole_file("check", &content, 16));
    let refusal =
        run_folioswap(&["mount", text(&place.0), "-m", "32M", "--swap", &format!("{device},discard")]);
    refused(&refusal, 125, &["discard"]);
}

/// Several processes work against their oracles while devices before, beside and behind the
/// compressed store are taken off, and then the store itself. `FOLIOSWAP_TMPFS_SECONDS=3600` is the
/// long form: the devices go one by one in its first fifth.
#[test]
fn random_operations_while_devices_are_taken_off() {
    needs_fuse!();
    let seconds =
        std::env::var("FOLIOSWAP_TMPFS_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(10);
    let seed = if seconds > 10 { std::process::id() } else { 3 };
    let directories = ["before", "beside", "behind"].map(Directory::new);
    let priorities = [3, 2, 1];
    let mut devices: Vec<String> = directories
        .iter()
        .zip(priorities)
        .map(|(directory, priority)| format!("file:{},size=512M,prio={priority}", text(&directory.0)))
        .collect();
    devices.extend(["zram,prio=2".to_owned(), "ram,size=16M,prio=3".to_owned()]);
    let mut words = vec!["--memory", "32M", "--size", "2G", "--huge", "within_size"];
    devices.iter().for_each(|device| words.extend(["--swap", device.as_str()]));
    let mount = Mount::new("taken-off", &words);
    let numbers = [seconds, u64::from(seed), 12 * MIB].map(|number| number.to_string());
    let mut processes = Command::new(FILES)
        .arg(mount.path())
        .args(["--seconds", &numbers[0], "--seed", &numbers[1], "--size", &numbers[2]])
        .spawn()
        .expect("acc-tmpfs");
    for name in [text(&directories[0].0), "ram0", "zram", text(&directories[1].0)] {
        std::thread::sleep(Duration::from_millis(50 * seconds));
        assert!(
            processes.try_wait().expect("wait").is_none(),
            "seed {seed}: they ended before {name} was taken off"
        );
        let before = swaps(&mount);
        done(&run_folioswap(&["swapoff", text(mount.path()), name]));
        println!("{name}: of {before:?} there are {:?}", swaps(&mount));
    }
    assert!(processes.wait().expect("wait").success(), "seed {seed}");
    let left = swaps(&mount);
    assert_eq!(left.len(), 1, "{left:?}");
}
