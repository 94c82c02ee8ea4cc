//! `--swap-tiers`: new pages go to the devices of these priorities alone, also when the tiers
//! change while programs use the swap. Pages that are on other devices stay there, and come back.

use folioswap_acceptance::disk::{Directory, Scratch};
use folioswap_acceptance::job::{self, Engine, Job, Running};
use folioswap_acceptance::programs::{refused, run_folioswap};
use folioswap_acceptance::shown::{table, used, wait_for_use};
use folioswap_acceptance::{MIB, mount, mount::Mount, skip};
use std::fs::File;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const LOST: &str = env!("CARGO_BIN_EXE_acc-lost");
const TOUCH: &str = env!("CARGO_BIN_EXE_acc-touch");
const FILES: &str = env!("CARGO_BIN_EXE_acc-tmpfs");
const LIMIT: u64 = 32 * MIB;
/// What a process asks for at a time, and may have on the way to it when the tiers change.
const ON_THE_WAY: u64 = 32 * MIB;

macro_rules! only_folioswap {
    () => {
        if !job::judging_folioswap() {
            skip!("only for folioswap");
        }
    };
}

fn start(words: &[&str], options: &[&str]) -> Running {
    start_in("resident", words, options)
}

fn start_in(scope: &'static str, words: &[&str], options: &[&str]) -> Running {
    let job =
        options.iter().fold(Job::new(words).timeout(Duration::from_secs(240)), |job, word| job.option(word));
    job.start(Engine::Folioswap { memory: Some(LIMIT), scope })
}

#[track_caller]
fn done(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[track_caller]
fn set(running: &Running, tiers: &str) {
    done(&run_folioswap(&["set", &running.pid.to_string(), "--swap-tiers", tiers]));
}

fn line(running: &Running, name: &str) -> String {
    table(running).into_iter().find(|row| row.name == name).map(|row| row.line).unwrap_or_default()
}

/// Compressed RAM and two files of priorities 10, 5 and 0.
struct Devices {
    upper: Directory,
    lower: Directory,
}

impl Devices {
    fn new() -> Devices {
        Devices { upper: Directory::new("upper"), lower: Directory::new("lower") }
    }

    fn names(&self) -> [String; 2] {
        [&self.upper, &self.lower].map(|directory| directory.0.display().to_string())
    }

    fn options(&self) -> Vec<String> {
        let [upper, lower] = self.names();
        let devices = [
            "zram,prio=10".to_owned(),
            format!("file:{upper},size=512M,prio=5"),
            format!("file:{lower},size=512M,prio=0"),
        ];
        devices.into_iter().flat_map(|device| ["--swap".to_owned(), device]).collect()
    }
}

/// The lowest tier alone takes the first pages, although others come before it; then another one
/// does, and what is on the first stays there and is read from there.
#[test]
fn new_pages_go_to_the_tiers_that_are_set() {
    only_folioswap!();
    let devices = Devices::new();
    let [upper, lower] = devices.names();
    let mut options = devices.options();
    options.extend(["--swap-tiers".to_owned(), "0".to_owned()]);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    // `fill` writes each page anew, so that it leaves for a new place.
    let words = [
        TOUCH,
        "--timing",
        "--size",
        "96M",
        "--kind",
        "mixed",
        "--phases",
        "fill,verify,random,verify,random,verify,random,verify",
        "--writes",
        "100",
        "--touches",
        "20000",
    ];
    let mut running = start(&words, &options);
    wait_for_use(&mut running, &lower, 48 * MIB);
    assert!(line(&running, "zram").ends_with(",masked"), "{}", line(&running, "zram"));
    assert!(line(&running, &upper).ends_with(",masked"));
    assert_eq!((used(&running, "zram"), used(&running, &upper)), (Some(0), Some(0)));
    set(&running, "5");
    let before = used(&running, &lower).expect("it is there");
    wait_for_use(&mut running, &upper, 16 * MIB);
    let now = used(&running, &lower).expect("it is there");
    assert!(now > 0 && now <= before + ON_THE_WAY, "{before} bytes before, {now} now");
    assert_eq!(used(&running, "zram"), Some(0));
    set(&running, "10,5,0");
    assert!(!line(&running, &lower).contains("masked"));
    wait_for_use(&mut running, "zram", MIB);
    let outcome = running.finish();
    job::report("tiers", &outcome);
    outcome.check();
    outcome.check_validated();
    outcome.check_clean();
}

/// Three processes fill, touch and verify; the tiers change all the time.
#[test]
fn tiers_that_change_a_hundred_times_lose_nothing() {
    only_folioswap!();
    let devices = Devices::new();
    let options = devices.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let phases = "fill,random,verify,random,verify,random,verify,random,verify";
    let words = [
        TOUCH,
        "--size",
        "24M",
        "--kind",
        "mixed",
        "--phases",
        phases,
        "--processes",
        "3",
        "--touches",
        "30000",
    ];
    let mut running = start(&words, &options);
    let [upper, lower] = devices.names();
    assert_eq!(table(&running).len(), 3, "it is there");
    let mut changes = 0;
    for tiers in ["0", "10", "5,0", "5", "all", "10,0"].into_iter().cycle() {
        if changes >= 100 || running.poll() {
            break;
        }
        let output = run_folioswap(&["set", &running.pid.to_string(), "--swap-tiers", tiers]);
        // It may have ended meanwhile; and one that has much to do may not answer at once.
        if !output.status.success() {
            continue;
        }
        changes += 1;
    }
    let outcome = running.finish();
    job::report(&format!("{changes} changes"), &outcome);
    outcome.check();
    outcome.check_validated();
    assert!(changes >= 20, "it ended after {changes} changes");
    let stats = outcome.stats.as_ref().expect("statistics");
    for (number, name) in ["zram", &upper, &lower].into_iter().enumerate() {
        assert!(
            stats["devices"][number]["used_peak_bytes"].as_u64() > Some(0),
            "{name}: {}",
            outcome.describe()
        );
    }
    outcome.check_clean();
}

/// The store takes more than its share where the files below it are masked, and these get nothing.
/// Then the store is masked, and everything comes back from it while the lowest file takes what
/// leaves.
#[test]
fn what_is_masked_gets_nothing_although_the_store_is_full() {
    only_folioswap!();
    let devices = Devices::new();
    let mut options = devices.options();
    options.extend(["--swap-tiers".to_owned(), "10".to_owned()]);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let go = Scratch::new("masked-go");
    let mut running = start_in("total", &[LOST, "52", &go.0.display().to_string(), "2"], &options);
    running.wait_for_output("ready");
    let [upper, lower] = devices.names();
    wait_for_use(&mut running, "zram", LIMIT / 2 + MIB);
    assert_eq!((used(&running, &upper), used(&running, &lower)), (Some(0), Some(0)));
    set(&running, "0");
    File::create(&go.0).expect("a file");
    let outcome = running.finish();
    job::report("masked in scope total", &outcome);
    outcome.check();
    assert!(outcome.text().contains("lost 0 wrong 0"), "{}", outcome.describe());
    let stats = outcome.stats.as_ref().expect("statistics");
    let peak = |number: usize| stats["devices"][number]["used_peak_bytes"].as_u64();
    assert!(peak(1) == Some(0) && peak(2) > Some(0), "{}", outcome.describe());
    outcome.check_validated();
    outcome.check_clean();
}

/// The message names what can be changed.
#[test]
fn a_run_that_fills_its_tiers_is_told_of_the_others() {
    only_folioswap!();
    let devices = Devices::new();
    let mut words = vec!["run".to_owned(), "-m".to_owned(), "32M".to_owned()];
    words.extend(devices.options());
    words.extend(
        ["--swap-tiers", "10", "--", TOUCH, "--size", "96M", "--kind", "random", "--phases", "fill"]
            .map(str::to_owned),
    );
    refused(&run_folioswap(&words), 137, &["out of swap", "the other devices are masked", "--swap-tiers"]);
}

/// A group keeps a device that takes pages, and its tiers if another change is refused.
#[test]
fn what_would_leave_no_device_is_refused() {
    only_folioswap!();
    let devices = Devices::new();
    let [upper, _] = devices.names();
    let options = devices.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let go = Scratch::new("tiers-go");
    let mut running = start(&[LOST, "24", &go.0.display().to_string()], &options);
    running.wait_for_output("ready");
    let pid = running.pid.to_string();
    set(&running, "5");
    refused(&run_folioswap(&["swapoff", "--pid", &pid, &upper]), 125, &["--swap-tiers"]);
    done(&run_folioswap(&["freeze", &pid]));
    refused(&run_folioswap(&["set", &pid, "--memory", "8M", "--swap-tiers", "all"]), 125, &["frozen"]);
    assert!(line(&running, "zram").ends_with(",masked"), "the old tiers hold again");
    done(&run_folioswap(&["thaw", &pid]));
    set(&running, "5,0");
    done(&run_folioswap(&["swapoff", "--pid", &pid, &upper]));
    // The tier has no device any more.
    refused(&run_folioswap(&["set", &pid, "--swap-tiers", "5"]), 125, &["no device has priority 5", "10, 0"]);
    let directory = Directory::new("first-again");
    let first = format!("file:{},size=8M,prio=5", directory.0.display());
    done(&run_folioswap(&["swapon", "--swap", &first, &pid]));
    assert!(!line(&running, &directory.0.display().to_string()).contains("masked"));
    File::create(&go.0).expect("a file");
    running.finish().check();
}

/// A device that is added is in the tier of its priority.
#[test]
fn an_added_device_is_treated_like_its_tier() {
    only_folioswap!();
    let devices = Devices::new();
    let options = devices.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let mut running = start(&["sh", "-c", "echo here; exec sleep 600"], &options);
    running.wait_for_output("here");
    let pid = running.pid.to_string();
    set(&running, "10,0");
    let (beside, alone) = (Directory::new("beside"), Directory::new("alone"));
    let device = |directory: &Directory, prio| format!("file:{},size=8M,prio={prio}", directory.0.display());
    done(&run_folioswap(&["swapon", "--swap", &device(&beside, 5), &pid]));
    done(&run_folioswap(&["swapon", "--swap", &device(&alone, 7), &pid]));
    let name = |directory: &Directory| directory.0.display().to_string();
    assert!(line(&running, &name(&beside)).ends_with(",masked"), "{}", line(&running, &name(&beside)));
    assert!(!line(&running, &name(&alone)).contains("masked"), "a new tier is in use");
    set(&running, "5");
    assert!(!line(&running, &name(&beside)).contains("masked"));
    assert!(line(&running, "zram").ends_with(",masked"));
    let cases: [(&[&str], &[&str]); 8] = [
        (&["set", &pid, "--swap-tiers", "6"], &["--swap-tiers 6", "no device has priority 6", "10, 7, 5, 0"]),
        (&["set", &pid, "--swap-tiers", "-1"], &["no device has priority -1"]),
        (&["set", &pid, "--swap-tiers", ""], &["all", "10,0"]),
        (&["set", &pid, "--swap-tiers", "fast"], &["all", "10,0"]),
        (&["set", &pid, "--swap-tiers", "5,"], &["all", "10,0"]),
        (
            &["run", "-m", "64M", "--swap", "zram,prio=3", "--swap-tiers", "4", "--", "true"],
            &["no device has priority 4", "the tiers are 3"],
        ),
        (&["run", "-m", "64M", "--swap-tiers", "all,3", "--", "true"], &["all", "10,0"]),
        (&["mount", "/nowhere", "-m", "64M", "--swap-tiers", "x"], &["all", "10,0"]),
    ];
    for (words, said) in cases {
        refused(&run_folioswap(words), 125, said);
    }
    assert!(line(&running, "zram").ends_with(",masked"), "nothing has changed");
    running.signal(libc::SIGKILL);
}

/// The same of a mount.
#[test]
fn a_mount_has_tiers_too() {
    only_folioswap!();
    if let Some(reason) = mount::missing() {
        skip!("{reason}");
    }
    let devices = Devices::new();
    let [upper, lower] = devices.names();
    let mut words: Vec<String> =
        ["--memory", "32M", "--size", "1G", "--swap-tiers", "0"].map(str::to_owned).into();
    words.extend(devices.options());
    let mount = Mount::new("tiers", &words.iter().map(String::as_str).collect::<Vec<_>>());
    let path = mount.path().display().to_string();
    let work = |action: &str, name: &str| {
        let file = mount.file(name).display().to_string();
        let mut program = Command::new(FILES);
        let status = program.args([action, &file, "64", "7"]).stdin(Stdio::null()).status();
        assert!(status.expect("acc-tmpfs").success(), "{action} {name}");
    };
    let used = |name: &str| {
        let stats = run_folioswap(&["stats", &path, "--json"]);
        let stats: serde_json::Value = serde_json::from_slice(&stats.stdout).expect("JSON");
        let devices = stats["devices"].as_array().expect("devices");
        let device = devices.iter().find(|device| device["name"] == name).expect("it is there");
        device["used_bytes"].as_u64().expect("bytes")
    };
    work("fill", "first");
    assert_eq!((used("zram"), used(&upper)), (0, 0));
    assert!(used(&lower) >= 32 * MIB, "{}", used(&lower));
    done(&run_folioswap(&["set", &path, "--swap-tiers", "5"]));
    let before = used(&lower);
    work("fill", "second");
    assert!(used(&upper) >= 32 * MIB, "{}", used(&upper));
    assert!(used("zram") == 0 && used(&lower) <= before + 2 * MIB, "{before} bytes before, {}", used(&lower));
    refused(
        &run_folioswap(&["set", &path, "--swap-tiers", "3"]),
        125,
        &["no device has priority 3", "10, 5, 0"],
    );
    refused(&run_folioswap(&["swapoff", &path, &upper]), 125, &["no other device of these tiers"]);
    refused(&run_folioswap(&["set", &path, "--swap-tiers", "all", "--size", "4K"]), 125, &["contents"]);
    let masked = || {
        let stats = run_folioswap(&["stats", &path, "--json"]);
        let stats: serde_json::Value = serde_json::from_slice(&stats.stdout).expect("JSON");
        let devices = stats["devices"].as_array().expect("devices");
        devices.iter().map(|device| device["masked"] == true).collect::<Vec<_>>()
    };
    assert_eq!(masked(), [true, false, true], "the old tiers hold again");
    done(&run_folioswap(&["set", &path, "--swap-tiers", "all"]));
    done(&run_folioswap(&["swapoff", &path, &upper]));
    refused(&run_folioswap(&["set", &path, "--swap-tiers", "0", "--size", "4K"]), 125, &["contents"]);
    assert_eq!(masked(), [false, false], "those that are left");
    work("check", "first");
    work("check", "second");
}
