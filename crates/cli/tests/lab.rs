//! The command line of `folioswap lab`: its output, its refusals, and that a refusal leaves nothing
//! half done.

use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

/// The directory of one test, removed when it is dropped.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("folioswap-lab-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a directory");
        Place(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("readable");
        entries.map(|entry| entry.expect("entry").file_name().into_string().expect("UTF-8")).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn lab(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_folioswap")).arg("lab").args(words).output().expect("folioswap")
}

#[track_caller]
fn good(words: &[&str]) -> String {
    let output = lab(words);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {errors}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[track_caller]
fn json(words: &[&str]) -> Value {
    serde_json::from_str(&good(words)).expect("JSON")
}

/// Asserts that the command is refused with a status and a message that has these words, and prints
/// no output.
#[track_caller]
fn refused(words: &[&str], status: i32, said: &[&str]) {
    let output = lab(words);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{words:?}: {errors}");
    assert!(!errors.contains("panicked"), "{errors}");
    for word in said {
        assert!(errors.contains(word), "{word:?} is missing in: {errors}");
    }
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// The smallest trace that has events of every kind; each test makes its own.
fn trace(place: &Place) -> String {
    let file = place.file("build.trace");
    good(&["generate", &file, "--scale", "48", "--tasks", "4"]);
    file
}

#[test]
fn every_command_explains_itself() {
    let all = good(&["--help"]);
    for command in [
        "cluster-scan",
        "slot-cache",
        "thp-swapout",
        "round-robin",
        "shmem-swapin",
        "replay",
        "generate",
        "fit",
        "import",
        "export",
        "contention",
        "calibrate",
        "policies",
    ] {
        assert!(all.contains(command), "{all}");
        let help = good(&[command, "--help"]);
        assert!(help.contains("Usage: folioswap lab"), "{help}");
    }
    assert!(!all.contains("hog"), "an internal command is shown");
    let policies = good(&["policies"]);
    for policy in ["current", "scan-all", "slot-cache", "drained-first", "6.9", "6.19"] {
        assert!(policies.lines().any(|line| line.starts_with(policy)), "{policies}");
    }
}

#[test]
fn cluster_scan_prints_json_and_draws() {
    let place = Place::new();
    let plot = place.file("scan.svg");
    let tiny = ["cluster-scan", "--scale", "48", "--tasks-per-job", "2", "--runs", "1", "--fill", "90"];
    let result = json(&[&tiny[..], &["--json", "--plot", &plot]].concat());
    assert_eq!(result["experiment"], "cluster-scan");
    assert!(
        result["results"]["outcomes"].as_array().is_some_and(|outcomes| outcomes.len() >= 12),
        "{result}"
    );
    let picture = fs::read_to_string(&plot).expect("the picture");
    assert!(picture.contains("<svg") && picture.trim_end().ends_with("</svg>"));
    let text = good(&tiny);
    for word in ["published before", "ours before", "64 kB only", "Not comparable", "threads"] {
        assert!(text.to_lowercase().contains(&word.to_lowercase()), "{word:?} is missing in: {text}");
    }
}

#[test]
fn slot_cache_prints_json() {
    let result = json(&["slot-cache", "--quick", "--pairs", "2", "--threads", "1", "--json"]);
    assert_eq!(result["experiment"], "slot-cache");
}

#[test]
fn thp_swapout_prints_json_and_text_and_draws() {
    let place = Place::new();
    let plot = place.file("swapout.svg");
    let tiny = ["thp-swapout", "--rounds", "2", "--threads", "1", "--task-mib", "2"];
    let result = json(&[&tiny[..], &["--json", "--plot", &plot]].concat());
    assert_eq!(result["experiment"], "thp-swapout");
    assert_eq!(result["results"]["options"]["task_mib"], 2);
    let cases = result["results"]["outcomes"]["cases"].as_array().expect("cases");
    assert_eq!(cases.len(), 9);
    let before = &cases[1]["measured"][0];
    assert_eq!((&before["variant"], &before["counts"]["swpout"]), (&"before".into(), &0.into()), "{before}");
    let after = &cases[1]["measured"][1];
    assert!(after["counts"]["swpout"].as_u64() > Some(0), "{after}");
    let picture = fs::read_to_string(&plot).expect("the picture");
    assert!(picture.contains("<svg") && picture.trim_end().ends_with("</svg>"));
    let text = good(&tiny);
    for word in ["published before", "+46.3 %", "split first", "swpout_fallback", "Not comparable"] {
        assert!(text.contains(word), "{word:?} is missing in: {text}");
    }
}

#[test]
fn round_robin_prints_json_and_text() {
    let result = json(&["round-robin", "--quick", "--runs", "1", "--json"]);
    assert_eq!(result["experiment"], "round-robin");
    assert!(good(&["round-robin", "--quick", "--runs", "1"]).contains("equal"));
}

#[test]
fn a_generated_trace_is_replayed_fitted_and_generated_again() {
    let place = Place::new();
    let file = trace(&place);
    let again = place.file("again.trace");
    good(&["generate", &again, "--scale", "48", "--tasks", "4"]);
    assert!(fs::read(&file).unwrap() == fs::read(&again).unwrap(), "the same options give the same file");
    good(&["generate", &again, "--scale", "48", "--tasks", "4", "--seed", "2"]);
    assert!(fs::read(&file).unwrap() != fs::read(&again).unwrap(), "another seed gives another file");

    let replayed = json(&["replay", &file, "--json", "--policy", "scan-all", "--device", "ram", "--locks"]);
    assert_eq!(replayed["policy"], "scan-all");
    assert!(replayed["locks"].is_array(), "{replayed}");
    assert!(good(&["replay", &file, "--threads", "2", "--cpus", "7"]).contains("7 logical CPUs, 2 threads"));

    let mut wanted = json(&["fit", &file])["parameters"].clone();
    // A trace does not show the limit, which so has its default: more than this build needs.
    wanted["limit_pages"] = 1024.into();
    let parameters = place.file("parameters.json");
    fs::write(&parameters, wanted.to_string()).expect("written");
    let like = place.file("like.trace");
    good(&["generate", &like, "--parameters", &parameters, "--tasks", "2"]);
    assert!(json(&["fit", &like])["allocations"].as_u64() > Some(0));
    let printed = json(&["generate", "--print-parameters", "--parameters", &parameters]);
    assert_eq!(printed, wanted);
}

#[test]
fn several_policies_are_columns_of_one_table() {
    let place = Place::new();
    let file = trace(&place);
    let policies = "6.14,6.18,scan-one+free-first,current";
    let table = good(&["replay", &file, "--policy", policies, "--locks"]);
    let head = table.lines().find(|line| line.contains("6.14")).expect("a head");
    let columns: Vec<&str> = head.split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert_eq!(columns, ["6.14", "6.18", "scan-one+free-first", "current"]);
    assert!(table.contains("cluster locks per operation"), "{table}");
    let all = json(&["replay", &file, "--policy", policies, "--json"]);
    let named: Vec<&str> =
        all.as_array().unwrap().iter().map(|one| one["policy"].as_str().unwrap()).collect();
    assert_eq!(named, ["6.14", "6.18", "scan-one+free-first", "current"]);
    // Each figure is that of the policy alone.
    let alone = json(&["replay", &file, "--policy", "scan-one+free-first", "--json"]);
    assert_eq!(all[2]["clusters_scanned"], alone["clusters_scanned"]);
    refused(&["replay", &file, "--policy", "6.14,7.0"], 125, &["7.0", "6.14", "scan-one"]);
}

#[test]
fn a_replay_is_told_over_time_as_picture_table_and_json() {
    let place = Place::new();
    let file = trace(&place);
    let [picture, table, all] = ["o.svg", "o.csv", "o.json"].map(|name| place.file(name));
    let policies = ["--policy", "scan-all,current"];
    let replay = |out: &str, more: &[&str]| {
        good(&[&["replay", &file, "--over-time", out][..], &policies, more].concat())
    };
    // The last row has times.
    let counts = |table: &str| table.rsplit_once("| ns per operation").expect("a row").0.to_owned();
    assert_eq!(counts(&replay(&picture, &[])), counts(&good(&[&["replay", &file][..], &policies].concat())));
    let picture = fs::read_to_string(picture).expect("written");
    assert!(picture.starts_with("<svg") && picture.contains("scan-all: ") && picture.contains("current: "));
    replay(&table, &["--looks", "10"]);
    let table = fs::read_to_string(table).expect("written");
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!((rows.len(), &rows[0][..3]), (1 + 2 * 11, &["policy", "operations", "slots_in_use"][..]));
    assert!(rows.iter().all(|row| row.len() == rows[0].len()));
    replay(&all, &["--looks", "10"]);
    let all: Value = serde_json::from_str(&fs::read_to_string(all).expect("written")).expect("JSON");
    for (number, policy) in ["scan-all", "current"].iter().enumerate() {
        let moments = all[number]["over_time"]["moments"].as_array().expect("moments");
        assert_eq!((all[number]["policy"].as_str(), moments.len()), (Some(*policy), 11));
        let last = &moments[10];
        assert_eq!(last["operations"].to_string(), rows[(number + 1) * 11][1], "the same figures");
        assert_eq!(last["slots_in_use"].to_string(), rows[(number + 1) * 11][2]);
    }
    refused(&["replay", &file, "--over-time", "o.png"], 125, &["o.png", ".svg, .csv or .json"]);
    refused(&["replay", &file, "--looks", "10"], 125, &["--over-time"]);
    let two = ["replay", &file, "--over-time", "/nonexistent/o.svg", "--threads", "2"];
    refused(&two, 125, &["over time only where one thread replays"]);
    refused(
        &["replay", &file, "--over-time", "/nonexistent/o.svg"],
        125,
        &["/nonexistent/o.svg", "No such file"],
    );
}

#[test]
fn a_trace_becomes_text_and_a_trace_again() {
    let place = Place::new();
    let file = trace(&place);
    let text = place.file("build.txt");
    fs::write(&text, good(&["export", &file])).unwrap();
    let again = place.file("again.trace");
    good(&["import", &text, &again]);
    assert!(fs::read(&file).unwrap() == fs::read(&again).unwrap(), "the text loses something");
    fs::write(&text, "# folioswap-trace tick_ns=1\n5 0 alloc 4 0:17\n").unwrap();
    fs::remove_file(&again).unwrap();
    refused(&["import", &text, &again], 125, &["build.txt", "line 2", "misaligned"]);
    assert!(!Path::new(&again).exists(), "a trace was begun");
}

#[test]
fn contention_repeats_and_takes_costs_from_a_file() {
    let place = Place::new();
    let words = ["contention", "--series", "4", "--cpus", "12", "--scale", "512", "--json"];
    let first = json(&words);
    assert_eq!(first, json(&words));
    assert_eq!(first["results"]["outcomes"].as_array().map(Vec::len), Some(3 * 6));
    let costs = place.file("costs.json");
    let mut other = first["results"]["costs"].clone();
    other["costs"]["page_out_ns"] = 0.into();
    other["costs"]["page_in_ns"] = 0.into();
    fs::write(&costs, other.to_string()).unwrap();
    let free_pages = json(&[&words[..], &["--costs", &costs]].concat());
    assert_eq!(free_pages["results"]["outcomes"][0]["replayed"]["simulation"]["times"]["pages"], 0.0);
    refused(&["contention", "--series", "3"], 125, &["1, 2 and 4"]);
    refused(&["contention", "--costs", "/nonexistent/c.json"], 125, &["/nonexistent/c.json"]);
    fs::write(&costs, "{}").unwrap();
    refused(&["contention", "--costs", &costs], 125, &["lab calibrate"]);
}

#[test]
fn calibrate_measures_costs_that_contention_takes() {
    let place = Place::new();
    let file = place.file("here.json");
    assert!(good(&["calibrate", &file]).contains("processors"));
    let costs: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    for (name, cost) in costs["costs"].as_object().unwrap() {
        let cost = cost.as_f64().unwrap();
        assert!((0.0..1e7).contains(&cost), "{name}: {cost} ns");
    }
    // A page costs more than a lock, on any machine.
    assert!(costs["costs"]["page_out_ns"].as_f64() > costs["costs"]["lock_ns"].as_f64());
    good(&["contention", "--series", "4", "--cpus", "12", "--scale", "512", "--costs", &file]);
}

#[test]
fn the_experiments_run_on_a_trace() {
    let place = Place::new();
    let file = trace(&place);
    let scan = json(&["cluster-scan", "--trace", &file, "--fill", "80,95", "--json"]);
    assert_eq!(scan["results"]["cases"].as_array().map(Vec::len), Some(4), "{scan}");
    assert!(good(&["cluster-scan", "--trace", &file]).contains("ours patch 2"));
    let pairs = json(&["slot-cache", "--trace", &file, "--pairs", "2", "--threads", "2", "--json"]);
    assert_eq!(pairs["results"]["pairs"].as_array().map(Vec::len), Some(2), "{pairs}");
    let plot = place.file("use.svg");
    assert!(good(&["round-robin", "--trace", &file, "--plot", &plot]).contains("drained-first"));
    assert!(fs::read_to_string(&plot).expect("the picture").contains("<svg"));
    refused(&["cluster-scan", "--trace", &file, "--scale", "2"], 125, &["--trace", "--scale"]);
    refused(&["slot-cache", "--trace", "/nonexistent/x"], 125, &["/nonexistent/x"]);
}

#[test]
fn traces_that_are_none_are_named() {
    let place = Place::new();
    let file = trace(&place);
    let bytes = fs::read(&file).unwrap();
    let spoilt = place.file("spoilt.trace");
    let with = |bytes: &[u8]| fs::write(&spoilt, bytes).expect("written");
    for command in ["replay", "fit"] {
        refused(&[command, "/nonexistent/x.trace"], 125, &["/nonexistent/x.trace", "No such file"]);
        refused(&[command, "/tmp"], 125, &["/tmp", "directory"]);
        with(&bytes[..bytes.len() - 5]);
        refused(&[command, &spoilt], 125, &["cut off", "head -c"]);
        with(&bytes[..20]);
        refused(&[command, &spoilt], 125, &["too short"]);
        with(b"#!/bin/sh\n# This is a text of more than sixty-four bytes, which no trace begins with.\n");
        refused(&[command, &spoilt], 125, &["not a folioswap trace"]);
        with(&bytes[..64]);
        refused(&[command, &spoilt], 125, &["no allocations"]);
        let mut damaged = bytes.clone();
        damaged[64..80].fill(0xff);
        with(&damaged);
        refused(&[command, &spoilt], 125, &["record 1 is damaged"]);
    }
}

#[test]
fn options_that_are_wrong_are_named() {
    let place = Place::new();
    let file = trace(&place);
    refused(&["replay", &file, "--policy", "fastest"], 125, &["fastest", "scan-all"]);
    refused(&["replay", &file, "--device", "floppy"], 125, &["floppy", "zram"]);
    refused(&["replay", &file, "--device", "zram,size=0"], 125, &["size=0"]);
    refused(&["replay", &file, "--threads", "0"], 125, &["--threads"]);
    refused(&["cluster-scan", "--scale", "0"], 125, &["--scale"]);
    refused(&["cluster-scan", "--fill", "101"], 125, &["--fill"]);
    refused(&["slot-cache", "--pairs", "1"], 125, &["--pairs"]);
    refused(&["thp-swapout", "--rounds", "1"], 125, &["--rounds"]);
    refused(&["thp-swapout", "--task-mib", "1"], 125, &["--task-mib"]);
    refused(&["thp-swapout", "--margin", "0"], 125, &["--margin"]);
    refused(&["round-robin", "--peer", "plan9"], 125, &["plan9", "kernel"]);
    refused(&["generate"], 125, &["<FILE>"]);
    let target = place.file("new.trace");
    refused(&["generate", &target, "--scale", "0"], 125, &["--scale"]);
    refused(&["generate", "/nonexistent/x.trace", "--scale", "48", "--tasks", "2"], 125, &["/nonexistent"]);
    let parameters = place.file("parameters.json");
    for (text, why) in [("{", "EOF"), ("{\"cpus\": 1}", "missing field"), ("[]", "invalid")] {
        fs::write(&parameters, text).expect("written");
        refused(&["generate", &target, "--parameters", &parameters], 125, &["--parameters", why]);
    }
    assert!(!Path::new(&target).exists(), "a trace was begun");
    assert_eq!(place.files().len(), 2, "{:?}", place.files());
}

#[test]
fn a_picture_that_cannot_be_drawn_is_named() {
    let tiny = ["cluster-scan", "--scale", "48", "--tasks-per-job", "1", "--runs", "1", "--fill", "90"];
    let output = lab(&[&tiny[..], &["--plot", "/nonexistent/x.svg"]].concat());
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--plot /nonexistent/x.svg"));
}
