//! `folioswap bench` measures correctly, and leaves the machine as it was.

use folioswap_acceptance::{programs, skip};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const SMALL: [&str; 8] = ["--size", "64M", "--limit", "16M", "--rounds", "1", "--touches", "200"];

fn bench(words: &[&str]) -> Output {
    of("touch", words)
}

fn of(name: &str, words: &[&str]) -> Output {
    Command::new(programs::folioswap())
        .args(["bench", name])
        .args(words)
        .output()
        .expect("folioswap can be run")
}

/// The settings that a comparison changes for its time: swap, huge page settings, memory cgroups of
/// ours.
fn machine() -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut note = |file: PathBuf| {
        if let Ok(text) = fs::read_to_string(&file) {
            // The second column and those after it are counters.
            let text = if file.ends_with("swaps") { text.lines().map(first_word).collect() } else { text };
            found.insert(file, text);
        }
    };
    let huge = Path::new("/sys/kernel/mm/transparent_hugepage");
    note("/proc/swaps".into());
    note(huge.join("enabled"));
    note(huge.join("defrag"));
    for entry in fs::read_dir(huge).into_iter().flatten().flatten() {
        note(entry.path().join("enabled"));
    }
    let memory = folioswap_peer::controller().map(|(_, root)| root.to_owned());
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let groups =
        mounts.lines().filter(|line| line.contains(" cgroup ")).filter_map(|line| line.split(' ').nth(1));
    let places = groups.map(PathBuf::from).chain(memory).chain([PathBuf::from("/var/tmp")]);
    for entry in places.flat_map(fs::read_dir).flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("folioswap-bench-") {
            found.insert(entry.path(), "a group".to_owned());
        }
    }
    found
}

fn first_word(line: &str) -> String {
    line.split_whitespace().next().unwrap_or("").to_owned() + "\n"
}

/// The reason why the kernel's swap cannot be compared with here, if there is one.
fn no_kernel() -> Option<&'static str> {
    // SAFETY: no arguments, no effects.
    if unsafe { libc::geteuid() } != 0 {
        return Some("setting up zram takes root");
    }
    if folioswap_peer::controller().is_none() {
        return Some("no memory cgroup can be made");
    }
    let zram = ["/sys/class/zram-control", "/sys/block/zram0"].iter().any(|place| Path::new(place).exists());
    (!zram).then_some("the kernel has no zram")
}

#[test]
fn the_kernel_beside_us_in_one_run() {
    if let Some(why) = no_kernel() {
        skip!("{why}");
    }
    let before = machine();
    let phases = ["--phases", "fill,reread,strided,random,changes", "--kind", "2:1,zero"];
    let peer = ["--peer", "kernel", "--thp", "4k,all", "--json"];
    let output = bench(&[&SMALL[..], &phases, &peer].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    assert_eq!(machine(), before);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let comparisons = report["results"]["comparisons"].as_array().expect("comparisons");
    assert_eq!(comparisons.len(), 2);
    for (comparison, kind) in comparisons.iter().zip(["2", "zero"]) {
        assert_eq!(comparison["kind"], kind);
        let engines = comparison["engines"].as_array().expect("engines");
        let names: Vec<_> = engines.iter().map(|engine| engine["engine"].as_str().expect("a name")).collect();
        assert_eq!(names, ["unlimited", "folioswap resident", "kernel 4k", "kernel all"]);
        for engine in engines {
            let runs = engine["runs"].as_array().expect("runs");
            let failed = engine["failed"].as_array().expect("failures");
            assert_eq!(runs.len() + failed.len(), 1, "{engine}");
            // The kernel's OOM killer now and then kills a program that folioswap lets end. That is
            // a result, and is reported.
            if engine["engine"] == "kernel all" && failed.len() == 1 {
                assert_eq!(failed[0], "killed by the kernel for want of memory");
                continue;
            }
            assert_eq!(runs.len(), 1, "{engine}");
            let timings = runs[0]["phases"].as_array().expect("phases");
            let phases: Vec<_> =
                timings.iter().map(|timing| timing["phase"].as_str().expect("a name")).collect();
            let changes = ["changes: in order", "changes: at random", "changes: in order"];
            assert_eq!(phases, [&["fill", "reread", "strided", "random"], &changes[..]].concat(), "{engine}");
            for timing in timings {
                let of = |name: &str| timing[name].as_u64().expect("nanoseconds");
                assert!(0 < of("p50_ns") && of("p50_ns") <= of("p99_ns"), "{timing}");
                assert!(of("p99_ns") <= of("p999_ns") && of("clock_ns") > 0, "{timing}");
            }
            judge_folios(engine, kind);
            let out = runs[0]["out_in"][0].as_u64();
            match (engine["engine"].as_str(), kind) {
                (Some("unlimited"), _) => assert_eq!(out, None),
                // 48 of 64 MiB do not fit.
                (_, "2") => assert!(out >= Some(48 * 256), "{engine}"),
                _ => assert!(out.is_some(), "{engine}"),
            }
        }
    }
    let variant = ["--run-with", "--swap ram,size=256M"];
    let text = bench(&[&SMALL[..], &["--phases", "fill", "--kind", "3:1"], &variant].concat());
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    for words in [
        "fill, 3:1 data",
        "unlimited",
        "folioswap resident ",
        "folioswap resident --swap ram,size=256M ",
        "The whole run",
        "was not asked (`--peer kernel`)",
    ] {
        assert!(text.contains(words), "{words:?} is missing in: {text}");
    }
}

/// Asserts that large folios leave where the setting makes them, and that huge pages map the memory
/// that the kernel's setting lets them.
fn judge_folios(engine: &serde_json::Value, kind: &str) {
    let run = &engine["runs"][0];
    let large =
        run["folios"].as_array().expect("folios").iter().filter(|counts| counts["kib"].as_u64() > Some(4));
    let out: u64 = large.filter_map(|counts| counts["swpout"].as_u64()).sum();
    let after_fill = &run["phases"][0]["resident"];
    let [resident, huge] = ["bytes", "huge_bytes"].map(|name| after_fill[name].as_u64().expect("bytes"));
    let (all, limit) = (64 << 20, 16 << 20);
    let (name, peak) = (engine["engine"].as_str().expect("a name"), run["peak"].as_u64());
    assert!(!name.starts_with("kernel") || (Some(limit / 2)..=Some(limit)).contains(&peak), "{engine}");
    match name {
        "unlimited" => {
            assert_eq!(run["folios"], serde_json::json!([]));
            assert!((all..all + (8 << 20)).contains(&resident), "{after_fill}");
        }
        "kernel 4k" => assert!(out == 0 && huge == 0 && resident <= limit, "{engine}"),
        "kernel all" => assert!(out > 0 && huge > 0 && resident <= limit, "{engine}"),
        // Pages of zeroes, all alike, go out too.
        _ => assert!((out > 0 || kind == "zero") && resident < all / 2, "{engine}"),
    }
}

const KILLED: &str = "killed by the kernel for want of memory";

/// The engines of a comparison within one limit by name, each with its only run. No run may have
/// failed; an engine whose run the kernel has killed is missing.
fn only_runs(output: &Output, path: &str) -> BTreeMap<String, serde_json::Value> {
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let engines = report.pointer(path).and_then(serde_json::Value::as_array).expect("engines");
    let run = |engine: &serde_json::Value| {
        let (name, failed) = (engine["engine"].as_str().expect("a name"), &engine["failed"]);
        if name.starts_with("kernel") && *failed == serde_json::json!([KILLED]) {
            return None;
        }
        assert_eq!(failed.as_array().map(Vec::len), Some(0), "{engine}");
        Some((name.to_owned(), engine["runs"][0].clone()))
    };
    let runs: BTreeMap<_, _> = engines.iter().filter_map(run).collect();
    assert!(["unlimited", "folioswap resident"].iter().all(|&name| runs.contains_key(name)), "{report}");
    runs
}

/// A hot set that fits stays resident. Of one that is twice the limit, no engine can keep much more
/// than half.
#[test]
fn a_hot_set_beside_the_kernel() {
    if let Some(why) = no_kernel() {
        skip!("{why}");
    }
    let before = machine();
    for (hot, scan, pages) in [("8M", "64M", 16_384), ("32M", "8M", 2048)] {
        let usual = ["--limit", "16M", "--rounds", "1", "--peer", "kernel", "--thp", "4k", "--json"];
        let output = of("hot-set", &[&usual[..], &["--hot", hot, "--scan", scan]].concat());
        let runs = only_runs(&output, "/results/comparisons/0/engines");
        for (name, run) in runs {
            let phases = run["phases"].as_array().expect("scans");
            assert_eq!(
                (phases.len(), &phases[0]["phase"], &phases[1]["phase"]),
                (2, &"write".into(), &"read".into())
            );
            for phase in phases {
                let of = |figure: &str| phase["hot"][figure].as_u64().expect("a count");
                assert_eq!(of("touches"), 4 * pages, "{name}");
                assert!(
                    of("unclear") <= of("from_store") && of("from_store") <= of("faults"),
                    "{name}: {phase}"
                );
                let kept = 1.0 - of("from_store") as f64 / of("touches") as f64;
                match (name.as_str(), hot) {
                    ("unlimited", _) => assert_eq!(of("from_store"), 0),
                    ("folioswap resident", "8M") => assert!(kept >= 0.95, "{kept}: {phase}"),
                    (_, "8M") => assert!(kept > 0.5, "{name}, {kept}: {phase}"),
                    _ => assert!((0.2..0.8).contains(&kept), "{name}, {kept}: {phase}"),
                }
            }
        }
    }
    assert_eq!(machine(), before);
    for (words, named) in
        [(["--hot", "1K"], "page"), (["--touches-per-page", "0"], "0"), (["--scan", "x"], "size")]
    {
        let output = of("hot-set", &words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{words:?}: {errors}");
        assert!(errors.contains(named), "{words:?}: {errors}");
    }
}

/// The output is right, and each limit is a comparison of its own.
#[test]
fn sort_beside_the_kernel() {
    if let Some(why) = no_kernel() {
        skip!("{why}");
    }
    let before = machine();
    let usual = [
        "--lines", "200000", "--rounds", "1", "--limit", "20M,16M", "--peer", "kernel", "--thp", "4k",
        "--json",
    ];
    let output = of("sort", &usual);
    for number in 0..2 {
        let runs = only_runs(&output, &format!("/results/comparisons/{number}/engines"));
        let right = &runs["unlimited"]["phases"][0]["output"];
        assert_eq!(right.as_str().map(str::len), Some(16));
        for (name, run) in &runs {
            assert_eq!(
                (&run["phases"][0]["phase"], &run["phases"][0]["output"]),
                (&"sort".into(), right),
                "{name}"
            );
            // The program needs 23 MiB.
            assert!(name == "unlimited" || run["out_in"][0].as_u64() > Some(256), "{name}: {run}");
        }
    }
    assert_eq!(machine(), before);
    for (words, named) in [(["--lines", "0"], "0"), (["--limit", "60M,1M"], "8M"), (["-S", "none"], "size")] {
        let output = of("sort", &words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{words:?}: {errors}");
        assert!(errors.contains(named), "{words:?}: {errors}");
    }
    let nowhere =
        Command::new(programs::folioswap()).args(["bench", "sort", "--quick"]).env("PATH", "/proc").output();
    let nowhere = nowhere.expect("folioswap can be run");
    assert_eq!(nowhere.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&nowhere.stderr).contains("sort: no such program"), "{nowhere:?}");
}

/// Two processes write in order and at random, and read all of it again.
#[test]
fn usemem_beside_the_kernel() {
    if let Some(why) = no_kernel() {
        skip!("{why}");
    }
    let before = machine();
    for how in [&["-j", "8"][..], &["-R", "-j", "4096"]] {
        let usual = ["48M", "-n", "2", "--init-time", "-O", "-y", "-x", "--check", "--limit", "32M"];
        let output = of(
            "usemem",
            &[&usual[..], how, &["--rounds", "1", "--peer", "kernel", "--thp", "4k", "--json"]].concat(),
        );
        let runs = only_runs(&output, "/results/engines");
        for (name, run) in &runs {
            let phases = run["phases"].as_array().expect("phases");
            let named = |name| phases.iter().filter(|phase| phase["phase"] == name).count();
            assert_eq!((named("access"), named("free")), (2, 2), "{name}: {run}");
            if name != "unlimited" {
                assert!(run["out_in"][0].as_u64() > Some(8192), "{name}: {run}");
            }
        }
    }
    assert_eq!(machine(), before);
    for (words, named) in [(["-j", "7"], "multiple of 8"), (["-j", "0"], "multiple of 8"), (["-n", "0"], "0")]
    {
        let output = of("usemem", &words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{words:?}: {errors}");
        assert!(errors.contains(named), "{words:?}: {errors}");
    }
}

const LONG_TOUCH: [&str; 11] = [
    "touch",
    "--size",
    "256M",
    "--limit",
    "32M",
    "--rounds",
    "100",
    "--phases",
    "fill,reread",
    "--kind",
    "2:1",
];
/// The sort needs 190 MiB, and its processes are children of one of ours.
const LONG_SORT: [&str; 5] = ["sort", "--limit", "120M", "--rounds", "100"];

/// Starts a comparison and waits until the kernel's zram and settings of huge pages are in use.
fn in_the_middle(of: &[&str], before: &BTreeMap<PathBuf, String>) -> Child {
    let mut command = Command::new(programs::folioswap());
    command.arg("bench").args(of).args(["--peer", "kernel", "--thp", "64k"]);
    let mut child =
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("folioswap can be run");
    let begin = Instant::now();
    let changed = |now: &BTreeMap<PathBuf, String>, part: &str| {
        now.iter().any(|(file, text)| file.to_string_lossy().contains(part) && before.get(file) != Some(text))
    };
    while begin.elapsed() < Duration::from_secs(60) {
        let now = machine();
        if ["swaps", "hugepages-64kB", "folioswap-bench-"].iter().all(|part| changed(&now, part)) {
            return child;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    drop(child.kill());
    drop(child.wait());
    panic!("the kernel was not asked");
}

/// Ctrl-C while the kernel's zram is in use leaves the machine as it was.
#[test]
fn an_interrupted_comparison_puts_everything_back() {
    if let Some(why) = no_kernel() {
        skip!("{why}");
    }
    let before = machine();
    for of in [&LONG_TOUCH[..], &LONG_SORT] {
        let mut child = in_the_middle(of, &before);
        // SAFETY: a signal to our own child.
        assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
        let status = child.wait().expect("our own child");
        assert_eq!(status.code(), Some(130), "{of:?}");
        assert_eq!(machine(), before, "{of:?}");
    }
}

/// `kill -9` leaves everything behind; the next comparison with the kernel restores the machine
/// before it begins.
#[test]
fn what_a_killed_comparison_leaves_behind_the_next_one_puts_back() {
    if let Some(why) = no_kernel() {
        skip!("{why}");
    }
    let before = machine();
    let mut child = in_the_middle(&LONG_TOUCH, &before);
    child.kill().expect("our own child");
    child.wait().expect("our own child");
    assert_ne!(machine(), before);
    let output = bench(
        &[&SMALL[..], &["--phases", "fill", "--kind", "2:1", "--peer", "kernel", "--thp", "4k"]].concat(),
    );
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(machine(), before);
}

#[test]
fn what_is_asked_wrongly_is_refused() {
    for (words, named) in [
        (vec!["--phases", "fill,sleep"], vec!["sleep", "reread"]),
        (vec!["--kind", "5:1"], vec!["5:1", "incompressible"]),
        (vec!["--peer", "kernel", "--thp", "3k"], vec!["3k", "64k"]),
        (vec!["--thp", "4k"], vec!["--peer"]),
        (vec!["--peer", "plan9"], vec!["plan9", "kernel"]),
        (vec!["--limit", "1M"], vec!["1M", "8M"]),
        (vec!["--rounds", "0"], vec!["0"]),
        (vec!["--phases", "changes-down"], vec!["changes-down", "strided"]),
        (vec!["--run-with", "--memory 1G"], vec!["run` would refuse", "--memory"]),
        (vec!["--run-with", "--nonsense"], vec!["run` would refuse", "--nonsense"]),
        (vec!["--run-with", "--swap ram"], vec!["run` would refuse", "size"]),
        (vec!["--run-with", ""], vec!["no option"]),
        (vec!["--advise", "yes"], vec!["yes", "nohugepage"]),
    ] {
        let output = bench(&words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{words:?}: {errors}");
        assert!(output.stdout.is_empty(), "{words:?}");
        for name in named {
            assert!(errors.contains(name), "{words:?}: {name:?} is missing in: {errors}");
        }
    }
}
