//! `folioswap swapoff` and `swapon` on a running group: a device leaves or is added while programs
//! use the swap, and nothing is lost.

use folioswap_acceptance::disk::{Directory, FileSystem, LoopDevice, Scratch};
use folioswap_acceptance::job::{self, Engine, Job, Running};
use folioswap_acceptance::programs::{folioswap, refused, run_folioswap};
use folioswap_acceptance::shown::{Row, table, used, wait_for_use};
use folioswap_acceptance::waiting::wait_until;
use folioswap_acceptance::{MIB, skip};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const LOST: &str = env!("CARGO_BIN_EXE_acc-lost");
const TOUCH: &str = env!("CARGO_BIN_EXE_acc-touch");
const LIMIT: u64 = 32 * MIB;

macro_rules! only_folioswap {
    () => {
        if !job::judging_folioswap() {
            skip!("only for folioswap");
        }
    };
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Starts a program with these devices.
fn start(words: &[&str], devices: &[String]) -> Running {
    let add = |job: Job, device: &String| job.option("--swap").option(device);
    let job = devices.iter().fold(Job::new(words).timeout(Duration::from_secs(240)), add);
    job.start(Engine::Folioswap { memory: Some(LIMIT), scope: "resident" })
}

fn swapoff(running: &Running, device: &str) -> Output {
    run_folioswap(&["swapoff", "--pid", &running.pid.to_string(), device])
}

#[track_caller]
fn done(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A directory on a file system of its own, which cannot be unmounted as long as a process has the
/// swap file there open.
fn file_system() -> Result<FileSystem, String> {
    FileSystem::new(400 * MIB).map_err(|why| why.to_string())
}

/// Several processes fork, fill, touch and verify their memory; the first disk is taken away
/// meanwhile, to the last descriptor.
#[test]
fn a_disk_is_taken_away_while_processes_fork_and_verify() {
    only_folioswap!();
    let disk = match file_system() {
        Ok(disk) => disk,
        Err(why) => skip!("no file system of its own: {why}"),
    };
    let point = text(&disk.point.0).to_owned();
    let devices = [format!("file:{point},prio=5"), "file:/var/tmp,size=1G,prio=1".to_owned()];
    let phases = "fill,random,verify,random,verify,random,verify,random,verify";
    let words = [
        TOUCH,
        "--timing",
        "--size",
        "48M",
        "--kind",
        "mixed",
        "--phases",
        phases,
        "--processes",
        "3",
        "--touches",
        "60000",
    ];
    let mut running = start(&words, &devices);
    // The number of clusters in use says little, because a process takes many at a time before it
    // fills them. Once all three processes have filled their memory, most of it is swapped out.
    wait_until("all three have filled their memory", || {
        assert!(!running.poll(), "it has ended: {}", running.errors());
        running.errors().matches("\"phase\":\"fill\"").count() == 3
    });
    done(&swapoff(&running, &point));
    let names: Vec<String> = table(&running).into_iter().map(|row| row.name).collect();
    assert_eq!(names, ["/var/tmp"]);
    assert!(!running.poll(), "it was taken away while they ran: {}", running.errors());
    wait_until("the file system can be unmounted", || disk.unmount().is_ok());
    let outcome = running.finish();
    job::report("swapoff", &outcome);
    outcome.check();
    outcome.check_validated();
    assert!(outcome.figure("swapoff_pages") >= Some(4096.0), "{}", outcome.describe());
    assert_eq!(outcome.figure("swapoff_lost"), Some(0.0));
    outcome.check_clean();
}

/// From plain RAM into compressed RAM, and from a block device onto a file.
#[test]
fn what_is_on_every_kind_of_device_goes_to_another_kind() {
    only_folioswap!();
    let backing = Scratch::file("swapoff-block", 256 * MIB);
    let block = match LoopDevice::new(&backing.0) {
        Ok(block) => block,
        Err(why) => skip!("no loop device: {why}"),
    };
    done(&run_folioswap(&["mkswap", text(&block.path)]));
    let cases = [
        (["ram,size=256M,prio=5".to_owned(), "zram,prio=1".to_owned()], "ram0"),
        (
            [
                format!("file:{},prio=5,encrypt=yes", text(&block.path)),
                "file:/var/tmp,size=1G,prio=1".to_owned(),
            ],
            text(&block.path),
        ),
    ];
    for (devices, leaves) in cases {
        let go = Scratch::new("swapoff-go");
        let mut running = start(&[LOST, "96", text(&go.0)], &devices);
        running.wait_for_output("ready");
        assert!(used(&running, leaves).expect("a row") >= 48 * MIB);
        done(&swapoff(&running, leaves));
        assert_eq!(used(&running, leaves), None);
        refused(&swapoff(&running, leaves), 125, &["has no swap device", leaves]);
        File::create(&go.0).expect("a file");
        let outcome = running.finish();
        job::report(leaves, &outcome);
        outcome.check();
        outcome.check_validated();
        assert!(
            outcome.text().contains("wrong 0") && outcome.text().contains("lost 0"),
            "{}",
            outcome.describe()
        );
    }
}

/// The cause of a delay is reported, and a swapoff that is interrupted leaves everything as it was.
#[test]
fn an_interrupted_swapoff_leaves_the_device_in_use() {
    only_folioswap!();
    let directory = Directory::new("interrupted");
    let name = text(&directory.0);
    let devices = [format!("file:{name},prio=5"), "file:/var/tmp,size=1G,prio=1".to_owned()];
    let go = Scratch::new("swapoff-stopped");
    let mut running = start(&[LOST, "96", text(&go.0)], &devices);
    running.wait_for_output("ready");
    let is_program = |pid: &i32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "acc-lost")
    };
    let all: Vec<i32> = running.processes().into_iter().filter(is_program).collect();
    assert_eq!(all.len(), 1);
    let stop = |signal| all.iter().for_each(|pid| assert_eq!(unsafe_kill(*pid, signal), 0));
    stop(libc::SIGSTOP);
    let words = ["swapoff", "--pid", &running.pid.to_string(), name];
    let mut waiting = Command::new(folioswap()).args(words).stderr(Stdio::null()).spawn().expect("swapoff");
    let leaves = |row: Row| row.name == name && row.line.ends_with("swapoff");
    wait_until("it leaves", || table(&running).into_iter().any(leaves));
    refused(&swapoff(&running, "/var/tmp"), 125, &["another device", "leaving"]);
    assert_eq!(unsafe_kill(waiting.id() as i32, libc::SIGINT), 0);
    assert!(!waiting.wait().expect("ended").success());
    wait_until("it is in use again", || !table(&running).into_iter().any(leaves));
    stop(libc::SIGCONT);
    // `folioswap run` stops when its CMD does, as a shell wants it.
    running.signal(libc::SIGCONT);
    assert!(used(&running, name).expect("a row") >= 48 * MIB);
    done(&swapoff(&running, name));
    File::create(&go.0).expect("a file");
    let outcome = running.finish();
    outcome.check();
    assert!(
        outcome.text().contains("wrong 0") && outcome.text().contains("lost 0"),
        "{}",
        outcome.describe()
    );
}

fn unsafe_kill(pid: i32, signal: i32) -> i32 {
    // SAFETY: a signal to a process that this test has started.
    unsafe { libc::kill(pid, signal) }
}

/// Bytes of the swap file are overwritten from outside: those pages are lost and reported, and all
/// others are right.
#[test]
fn what_the_device_does_not_give_is_lost_and_said_to_be() {
    only_folioswap!();
    let file = Scratch::file("swapoff-spoilt", 128 * MIB);
    done(&run_folioswap(&["mkswap", text(&file.0)]));
    let devices = [format!("file:{},prio=5", text(&file.0)), "file:/var/tmp,size=1G,prio=1".to_owned()];
    let go = Scratch::new("swapoff-spoilt-go");
    let mut running = start(&[LOST, "64", text(&go.0)], &devices);
    running.wait_for_output("ready");
    let swap = fs::OpenOptions::new().write(true).open(&file.0).expect("the file");
    (0..8).for_each(|at| swap.write_all_at(&[0x5a; 4096], (4 + at) * MIB).expect("written"));
    let output = swapoff(&running, text(&file.0));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{message}");
    let lost = message.split_whitespace().find_map(|word| word.parse::<u64>().ok()).expect("how many");
    assert!(message.contains("it is off, but") && (1..=8).contains(&lost), "{message}");
    assert_eq!(used(&running, text(&file.0)), None);
    File::create(&go.0).expect("a file");
    let outcome = running.finish();
    job::report("spoilt", &outcome);
    let said = outcome.text();
    assert!(said.contains("wrong 0") && said.contains(&format!("lost {lost}")), "{}", outcome.describe());
    assert_eq!(outcome.figure("swapoff_lost"), Some(lost as f64));
}

#[test]
fn what_cannot_leave_stays() {
    only_folioswap!();
    let go = Scratch::new("swapoff-refused");
    let cases: [(&[String], &str, &[&str]); 3] = [
        (&["file:/var/tmp,size=1G".to_owned()], "/var/tmp", &["no other device", "in use as before"]),
        (
            &["ram,size=256M,prio=5".to_owned(), "file:/var/tmp,size=4M,prio=1".to_owned()],
            "ram0",
            &["room for only", "try again"],
        ),
        (&["zram".to_owned(), "ram,size=64M".to_owned()], "zram", &["each process's own compressed RAM"]),
    ];
    for (devices, device, words) in cases {
        let mut running = start(&[LOST, "64", text(&go.0)], devices);
        running.wait_for_output("ready");
        refused(&swapoff(&running, device), 125, words);
        refused(&swapoff(&running, "/nowhere"), 125, &["has no swap device /nowhere", "it has", device]);
        assert!(used(&running, device).is_some());
        File::create(&go.0).expect("a file");
        running.finish().check();
        fs::remove_file(&go.0).expect("removed");
    }
    refused(&run_folioswap(&["swapoff", "--pid", "1", "zram"]), 125, &["belongs to no running"]);
}

/// Runs swapon in a directory, from which relative names begin.
fn swapon(running: &Running, directory: &Path, device: &str) -> Output {
    let words = ["swapon", "--swap", device, &running.pid.to_string()];
    Command::new(folioswap()).args(words).current_dir(directory).output().expect("folioswap can be run")
}

/// One file after the other, sealed ones among them, is added and taken off while processes that
/// have forked use them.
#[test]
fn devices_come_and_go_while_processes_use_them() {
    only_folioswap!();
    let places: Vec<Directory> = ["one", "two", "three"].into_iter().map(Directory::new).collect();
    let name = |number: usize| text(&places[number].0).to_owned();
    let phases = ["random,verify"; 7].join(",");
    let phases = format!("fill,{phases}");
    let words = [
        TOUCH,
        "--size",
        "40M",
        "--kind",
        "mixed",
        "--phases",
        &phases,
        "--processes",
        "2",
        "--touches",
        "60000",
    ];
    let mut running = start(&words, &[format!("file:{},size=1G,prio=3", name(0))]);
    wait_for_use(&mut running, &name(0), 16 * MIB);
    for (leaves, comes, more) in [(0, 1, ""), (1, 2, ",encrypt=yes"), (2, 0, ""), (0, 1, "")] {
        let relative = places[comes].0.file_name().and_then(|name| name.to_str()).expect("a name");
        done(&swapon(&running, Path::new("/var/tmp"), &format!("file:{relative},size=1G,prio=1{more}")));
        let shown: Vec<String> = table(&running).into_iter().map(|row| row.name).collect();
        assert_eq!(shown.len(), 2, "{shown:?}");
        done(&swapoff(&running, &name(leaves)));
        assert!(!running.poll(), "they were exchanged under load: {}", running.errors());
        assert!(used(&running, &name(comes)).expect("a row") > 0);
        assert_eq!(used(&running, &name(leaves)), None);
    }
    let outcome = running.finish();
    job::report("swapon", &outcome);
    outcome.check();
    outcome.check_validated();
    assert_eq!(outcome.figure("swapoff_lost"), Some(0.0));
    outcome.check_clean();
}

/// The program needs more than there is: with one device more it does not end.
#[test]
fn a_device_that_is_added_takes_what_is_too_much() {
    only_folioswap!();
    let (small, large) = (Directory::new("small"), Directory::new("large"));
    let go = Scratch::new("swapon-go");
    let script = "echo ready; while [ ! -e \"$1\" ]; do sleep 0.05; done; exec \"$2\" --size 96M --kind random --phases fill,verify";
    let words = ["sh", "-c", script, "sh", text(&go.0), TOUCH];
    let mut running = start(&words, &[format!("file:{},size=8M,prio=3", text(&small.0))]);
    running.wait_for_output("ready");
    done(&swapon(&running, Path::new("/"), &format!("file:{},size=256M", text(&large.0))));
    File::create(&go.0).expect("a file");
    let outcome = running.finish();
    outcome.check();
    let peak = |number: usize| {
        let stats = outcome.stats.as_ref().expect("statistics");
        stats["devices"][number]["used_peak_bytes"].as_u64().expect("bytes")
    };
    assert!(peak(0) >= 6 * MIB && peak(1) >= 48 * MIB, "{}", outcome.describe());
}

#[test]
fn what_cannot_be_added_changes_nothing() {
    only_folioswap!();
    let directory = Directory::new("refused");
    let go = Scratch::new("swapon-refused");
    let devices = [format!("file:{},size=256M", text(&directory.0)), "ram,size=8M".to_owned()];
    let mut running = start(&[LOST, "40", text(&go.0)], &devices);
    running.wait_for_output("ready");
    let rows = || table(&running).iter().map(|row| row.name.clone()).collect::<Vec<_>>();
    let before = rows();
    let same = format!("file:{}", text(&directory.0));
    let blank = Scratch::file("swapon-blank", 8 * MIB);
    let foreign = format!("file:{}", text(&blank.0));
    let cases: [(&str, &[&str]); 6] = [
        ("zram", &["cannot be added", "folioswap run"]),
        (&same, &["one directory"]),
        ("file:/nowhere/at/all", &["/nowhere/at/all"]),
        ("floppy", &["unknown device type"]),
        ("nbd+unix:///?socket=/nowhere/socket", &["/nowhere/socket"]),
        (&foreign, &["mkswap"]),
    ];
    for (device, words) in cases {
        let output = swapon(&running, Path::new("/"), device);
        let message = String::from_utf8_lossy(&output.stderr).to_lowercase();
        assert_eq!(output.status.code(), Some(125), "{device}: {message}");
        assert!(words.iter().all(|word| message.contains(&word.to_lowercase())), "{device}: {message}");
        assert_eq!(rows(), before);
    }
    done(&swapon(&running, Path::new("/"), "ram,size=4M"));
    assert!(rows().contains(&"ram1".to_owned()));
    File::create(&go.0).expect("a file");
    running.finish().check();
    refused(&run_folioswap(&["swapon"]), 125, &["--show", "--swap"]);
}
