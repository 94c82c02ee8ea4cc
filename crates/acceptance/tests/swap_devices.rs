//! The swap devices of `--swap`: real programs on each kind and on several, used in the order that
//! was asked for.

use folioswap_acceptance::job::{self, Engine, Job, Outcome};
use folioswap_acceptance::programs::run_folioswap;
use folioswap_acceptance::{MIB, skip};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const TOUCH: &str = env!("CARGO_BIN_EXE_acc-touch");
const CLUSTER: u64 = 2 * MIB;

/// Directories of one test, removed on drop.
struct ScratchDirectory(PathBuf);

impl ScratchDirectory {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(format!("/var/tmp/folioswap-acc-devices-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("directory");
        ScratchDirectory(path)
    }
    /// The value of `--swap` for a file in a directory of this name.
    fn file(&self, name: &str) -> String {
        let path = self.0.join(name);
        fs::create_dir_all(&path).expect("directory");
        format!("file:{}", path.display())
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// The scope of the limit. In scope resident the devices alone decide how much fits.
#[derive(Clone, Copy)]
enum Scope {
    Total,
    Resident,
}

/// Runs a program that verifies every byte of `size` MiB of data with these devices, within 64 MiB.
fn run(scope: Scope, devices: &[&str], size: u64, kind: &str) -> Outcome {
    run_more(scope, devices, &["--size", &format!("{size}M"), "--kind", kind])
}

fn run_more(scope: Scope, devices: &[&str], words: &[&str]) -> Outcome {
    let mut job = Job::new(std::iter::once(&TOUCH).chain(words)).timeout(Duration::from_secs(240));
    for device in devices {
        job = job.option("--swap").option(device);
    }
    let scope = match scope {
        Scope::Total => "total",
        Scope::Resident => "resident",
    };
    let outcome = job.under(Engine::Folioswap { memory: Some(64 * MIB), scope });
    job::report(&devices.join(" "), &outcome);
    outcome
}

/// The largest use of each device in bytes with its type, in the order of the table.
fn used(outcome: &Outcome) -> Vec<(String, u64)> {
    let stats = outcome.stats.as_ref().unwrap_or_else(|| panic!("no statistics: {}", outcome.describe()));
    let devices = stats["devices"].as_array().expect("devices");
    let row = |device: &serde_json::Value| {
        let kind = device["type"].as_str().expect("a type").to_owned();
        (kind, device["used_peak_bytes"].as_u64().expect("bytes"))
    };
    devices.iter().map(row).collect()
}

fn kinds(outcome: &Outcome) -> Vec<String> {
    used(outcome).into_iter().map(|(kind, _)| kind).collect()
}

macro_rules! only_folioswap {
    () => {
        if !job::judging_folioswap() {
            skip!("only for folioswap");
        }
    };
}

#[test]
fn plain_ram_alone() {
    only_folioswap!();
    for synchronous in ["yes", "no"] {
        let device = format!("ram,size=512M,synchronous={synchronous}");
        let outcome = run(Scope::Resident, &[&device], 256, "mixed");
        outcome.check();
        job::check_swapped(&outcome, 192 * MIB);
        assert_eq!(kinds(&outcome), ["ram"], "{}", outcome.describe());
        assert!(used(&outcome)[0].1 >= 180 * MIB, "{:?}", used(&outcome));
        assert_eq!(outcome.figure("file_pswpout"), Some(0.0));
        assert!(outcome.said().is_empty(), "{}", outcome.describe());
    }
}

#[test]
fn compressed_ram_alone() {
    only_folioswap!();
    let outcome = run(Scope::Resident, &["zram"], 256, "3");
    outcome.check();
    job::check_swapped(&outcome, 192 * MIB);
    assert_eq!(kinds(&outcome), ["zram"]);
    assert!(used(&outcome)[0].1 >= 50 * MIB, "{:?}", used(&outcome));
}

#[test]
fn two_files_take_turns_cluster_by_cluster() {
    only_folioswap!();
    let scratch = ScratchDirectory::new("turns");
    let outcome = run(Scope::Total, &[&scratch.file("a"), &scratch.file("b")], 256, "random");
    outcome.check();
    job::check_swapped(&outcome, 192 * MIB);
    let used = used(&outcome);
    assert_eq!(kinds(&outcome), ["file", "file"]);
    assert!(used[0].1.abs_diff(used[1].1) <= CLUSTER, "one is used more: {used:?}");
    assert!(used[0].1 >= 90 * MIB, "{used:?}");
    assert!(outcome.said().is_empty(), "equals of one kind are not warned of: {}", outcome.describe());
}

/// The turn belongs to the group, not to each process: otherwise many small processes would all
/// begin with the same device.
#[test]
fn processes_take_turns_together() {
    only_folioswap!();
    let scratch = ScratchDirectory::new("processes");
    let words = ["--size", "32M", "--kind", "random", "--processes", "6"];
    let outcome = run_more(Scope::Total, &[&scratch.file("a"), &scratch.file("b")], &words);
    outcome.check();
    let used = used(&outcome);
    // Processes that end give back at most one cluster more of one device than of another.
    assert!(used[0].1 > 0 && used[0].1.abs_diff(used[1].1) <= 7 * CLUSTER, "{used:?}");
    // Forked children inherit pages on devices of every kind.
    let devices = ["ram,size=256M,prio=1", "zram,prio=1", &format!("{},prio=1", scratch.file("c"))];
    let outcome = run_more(Scope::Resident, &devices, &words);
    outcome.check();
    assert!(self::used(&outcome).iter().all(|(_, bytes)| *bytes > 0), "{}", outcome.describe());
}

/// The lower priority is left alone while the higher has room, and used when it has none.
#[test]
fn the_file_waits_until_compressed_ram_is_full() {
    only_folioswap!();
    let scratch = ScratchDirectory::new("priority");
    let file = scratch.file("a");
    let devices = ["zram,prio=7", &format!("{file},prio=3,size=1G")];
    let outcome = run(Scope::Resident, &devices, 192, "3");
    outcome.check();
    assert_eq!(used(&outcome)[1], ("file".to_owned(), 0), "{}", outcome.describe());
    // In scope total it is full at half of the limit.
    let outcome = run(Scope::Total, &devices, 256, "2");
    outcome.check();
    let used = used(&outcome);
    assert!(used[1].1 >= 64 * MIB && used[0].1 >= 16 * MIB, "{used:?}");
    assert!(outcome.said().is_empty(), "{}", outcome.describe());
}

/// The reverse order: a file first, and compressed RAM for the pages that do not fit there.
#[test]
fn compressed_ram_behind_a_small_file() {
    only_folioswap!();
    let scratch = ScratchDirectory::new("behind");
    let file = scratch.file("a");
    let outcome = run(Scope::Resident, &["zram,prio=0", &format!("{file},size=32M,prio=1")], 192, "3");
    outcome.check();
    assert_eq!(used(&outcome)[0], ("file".to_owned(), 32 * MIB), "{}", outcome.describe());
    assert!(used(&outcome)[1].1 >= 20 * MIB, "{}", outcome.describe());
}

#[test]
fn plain_ram_before_a_file() {
    only_folioswap!();
    let scratch = ScratchDirectory::new("ram-file");
    let file = format!("{},prio=0", scratch.file("a"));
    let outcome = run(Scope::Resident, &["ram,size=64M,prio=1", &file], 256, "random");
    outcome.check();
    let used = used(&outcome);
    assert_eq!(used[0], ("ram".to_owned(), 64 * MIB));
    assert!(used[1].1 >= 110 * MIB, "{used:?}");
}

/// In scope total plain RAM counts, and is full at half of the limit.
#[test]
fn plain_ram_counts_to_the_limit() {
    only_folioswap!();
    let scratch = ScratchDirectory::new("ram-total");
    let file = format!("{},prio=0", scratch.file("a"));
    let outcome = run(Scope::Total, &["ram,size=512M,prio=1", &file], 192, "random");
    outcome.check();
    let used = used(&outcome);
    assert!((1..=36 * MIB).contains(&used[0].1), "{used:?}");
    assert!(outcome.stderr.contains("--memory-scope resident"), "no warning: {}", outcome.describe());
}

/// Devices of different kinds without a priority are used in turn, and one line of output names the
/// option to write instead.
#[test]
fn kinds_without_a_priority_take_turns_and_are_warned_of() {
    only_folioswap!();
    let scratch = ScratchDirectory::new("kinds");
    let outcome = run(Scope::Resident, &["zram", &scratch.file("a")], 256, "2");
    outcome.check();
    let (all, file) = (outcome.figure("pswpout"), outcome.figure("file_pswpout"));
    let part = file.expect("pages") / all.expect("pages");
    assert!((0.35..0.65).contains(&part), "{part} of the pages went to the file: {}", outcome.describe());
    assert_eq!(outcome.said().len(), 1, "{}", outcome.describe());
    assert!(
        outcome.stderr.contains("zram,prio=1") && outcome.stderr.contains("prio=0"),
        "{}",
        outcome.describe()
    );
}

#[test]
fn out_of_swap_when_all_are_full() {
    only_folioswap!();
    let scratch = ScratchDirectory::new("full");
    let (a, b) = (format!("{},size=16M", scratch.file("a")), format!("{},size=8M", scratch.file("b")));
    for devices in [vec!["ram,size=16M"], vec![&*a, &*b], vec!["ram,size=8M,prio=1", &*a]] {
        let outcome = run(Scope::Resident, &devices, 256, "random");
        if devices.len() == 1 || devices[1] != a {
            job::check_out_of_memory(&outcome);
        }
        assert_eq!(outcome.code, Some(137), "{}", outcome.describe());
        let stats = outcome.stats.as_ref().expect("statistics");
        assert_eq!(stats["end"], "out_of_swap", "{}", outcome.describe());
        for word in ["out of swap", "is full", "--swap"] {
            assert!(outcome.stderr.contains(word), "{word} is missing: {}", outcome.describe());
        }
        for (kind, used) in used(&outcome) {
            assert!(used >= 8 * MIB, "{kind} was not full: {}", outcome.describe());
        }
    }
}

#[test]
fn the_table_shows_each_device() {
    only_folioswap!();
    let scratch = ScratchDirectory::new("table");
    let file = scratch.file("a b");
    let devices = [
        "zram,prio=5",
        "ram,size=32M",
        "ram,size=2M,synchronous=no,prio=9",
        &format!("{file},size=10M,prio=0"),
    ];
    let go = scratch.0.join("go");
    let script = "echo ready; while [ ! -e \"$0\" ]; do sleep 0.05; done";
    let mut job = Job::new(["sh", "-c", script, &go.display().to_string()]);
    for device in devices {
        job = job.option("--swap").option(device);
    }
    let mut running = job.start(Engine::Folioswap { memory: Some(64 * MIB), scope: "resident" });
    running.wait_for_output("ready");
    let output = run_folioswap(&["swapon", "--show", "--bytes", &running.pid.to_string()]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let path = scratch.0.display().to_string() + "/a\\040b";
    let expected = [
        vec!["NAME", "TYPE", "SIZE", "USED", "PRIO"],
        vec!["ram1", "ram", "2097152", "0", "9"],
        vec!["zram", "zram", "-", "0", "5"],
        vec![&path, "file", "10485760", "0", "0"],
        vec!["ram0", "ram", "33554432", "0", "-1"],
    ];
    assert_eq!(rows, expected, "{text}{}", String::from_utf8_lossy(&output.stderr));
    fs::write(&go, "").expect("a file");
    running.finish().check();
}

/// Each mistake is refused with its message before anything is started, and nothing is left.
#[test]
fn devices_that_are_none() {
    only_folioswap!();
    let scratch = ScratchDirectory::new("bad");
    let (marker, plain) = (scratch.0.join("started"), scratch.0.join("plain"));
    fs::write(&plain, "text").expect("file");
    let a = scratch.file("a");
    let plain_file = format!("file:{}", plain.display());
    let again = format!("{a}/../a");
    let cases: &[(&[&str], &str)] = &[
        (&["--swap", "tape"], "unknown device type"),
        (&["--swap", ""], "unknown device type"),
        (&["--swap", "zram,colour=red"], "does not know 'colour'"),
        (&["--swap", "zram,prio=32768"], "from 0 to 32767"),
        (&["--swap", "zram,prio=-1"], "from 0 to 32767"),
        (&["--swap", "zram,prio=1,prio=1"], "prio is given twice"),
        (&["--swap", "ram"], "needs a size"),
        (&["--swap", "ram,size=0"], "too small"),
        (&["--swap", "ram,size=9999999T"], "RAM"),
        (&["--swap", "ram,size=99999999999G"], "16 EiB"),
        (&["--swap", "ram,size=16M,synchronous=perhaps"], "synchronous=yes"),
        (&["--swap", "zram", "--swap", "zram,prio=1"], "twice"),
        (&["--swap", &a, "--swap", &again], "one directory"),
        (&["--swap", "file"], "directory"),
        (&["--swap", "file:/nowhere/at/all"], "Make that directory"),
        (&["--swap", "file:/dev/shm"], "tmpfs"),
        (&["--swap", "file:/proc"], "/proc"),
        (&["--swap", &plain_file], "too few"),
        (&["--swap", &format!("{a},size=1K")], "too small"),
        (&["--swap", &format!("{a},discard=sometimes")], "discard=once"),
        (&["--swap", "zram", "--swap-dir", "/var/tmp"], "--swap file:DIR"),
        (&["--swap", "zram", "--swap-max", "1G"], "--swap file:DIR"),
    ];
    for (words, expected) in cases {
        let mut line = vec!["run", "--memory", "64M"];
        line.extend(*words);
        let marker_text = marker.display().to_string();
        line.extend(["--", "touch", &marker_text]);
        let output = run_folioswap(&line);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(125), "{words:?}: {text}");
        assert!(text.contains(expected) && !text.contains("panicked"), "{words:?}: {text}");
        assert!(!marker.exists(), "{words:?}: the program was started");
    }
    assert_eq!(fs::read_to_string(&plain).expect("it is there"), "text");
    let left: Vec<_> = fs::read_dir(scratch.0.join("a")).expect("directory").collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(Path::new("/var/tmp").is_dir());
}
