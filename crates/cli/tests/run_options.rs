//! Options of `run` and `advise` that only a run can show, and wrong inputs with their messages.

use serde_json::Value;
use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
};

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("folioswap-options-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        Scratch(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The command, without the environment and the files of whoever runs the tests.
fn folioswap(arguments: &[&str], configuration: &Scratch) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_folioswap"));
    command.args(arguments).env("XDG_CONFIG_HOME", &configuration.0);
    for variable in ["FOLIOSWAP_MEMORY", "FOLIOSWAP_SWAP", "FOLIOSWAP_STATS"] {
        command.env_remove(variable);
    }
    command
}

fn texts(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// A program that goes through so many MiB so many times, in order.
fn walker(mib: u32, times: u32) -> String {
    format!(
        "b = bytearray({mib} << 20)\nfor turn in range({times}):\n for i in range(0, len(b), 4096): b[i] = turn + 1"
    )
}

/// The arguments, the environment, and the words of the message.
type Case = (Vec<String>, &'static [(&'static str, &'static str)], &'static [&'static str]);

/// Each of these is refused with status 125 before anything is started, by a message that has these
/// words.
#[test]
fn wrong_inputs_are_refused_and_say_what_to_do() {
    let scratch = Scratch::new("wrong");
    let witness = scratch.path("witness");
    let no_directory = scratch.path("no/such/directory/file");
    let file = |name: &str, text: &str| {
        fs::create_dir_all(scratch.path(name)).expect("a directory");
        fs::write(scratch.0.join(name).join("folioswap.toml"), text).expect("a file");
    };
    file("typo", "memroy = '64M'\n");
    file("syntax", "memory = \n");
    file("number", "memory = 64\n");
    file("profiles", "[profile.build]\nmemory = '64M'\n");
    file("bad-profile", "[profile.build]\nswap = ['zram,size=1G']\n");
    let long = format!("{}%", "9".repeat(400));
    let of = |arguments: &[&str]| arguments.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let run = |options: &[&str]| [&of(&["run"])[..], &of(options), &of(&["touch", &witness])].concat();
    let cases: Vec<Case> = vec![
        (run(&["-m", "0%"]), &[], &["not a percentage", "50%"]),
        (run(&["-m", "101%"]), &[], &["up to 100"]),
        (run(&["-m", "half%"]), &[], &["not a percentage"]),
        (run(&["-m", &long]), &[], &["not a percentage"]),
        (run(&["-m", "0.001%"]), &[], &["too small to run anything", "8M"]),
        (run(&["-m", "50 percent"]), &[], &["not a size", "512M"]),
        (run(&["-m", "64M", "--stats=everything"]), &[], &["short", "all", "off"]),
        (run(&["-m", "64M", "--stats=s.json"]), &[], &["s.json", "--stats-json FILE writes a file"]),
        (run(&["-m", "64M", "--stats-json", &no_directory]), &[], &["--stats-json", "No such file"]),
        (run(&["-m", "64M", "--report", &no_directory]), &[], &["--report", "No such file"]),
        (run(&["-m", "64M", "--report", "/"]), &[], &["--report /", "directory"]),
        (run(&["-m", "64M", "--timeline", &no_directory]), &[], &["--timeline", "No such file"]),
        (run(&["-m", "64M", "--report", "-", "--stats-json", "-"]), &[], &["--stats-json and --report"]),
        (run(&["-m", "64M", "--report", "-", "--timeline", "-"]), &[], &["--report and --timeline"]),
        (run(&["-m", "64M", "--profile", "build"]), &[], &["no such profile", "[profile.build]"]),
        (run(&["--profile", "biuld"]), &[("XDG_CONFIG_HOME", "profiles")], &["did you mean 'build'?"]),
        (run(&["-m", "64M"]), &[("XDG_CONFIG_HOME", "typo")], &["folioswap.toml", "did you mean 'memory'?"]),
        (run(&["-m", "64M"]), &[("XDG_CONFIG_HOME", "syntax")], &["folioswap.toml", "line 1"]),
        (run(&[]), &[("XDG_CONFIG_HOME", "number")], &["memory", "in quotes"]),
        (run(&["-m", "64M"]), &[("XDG_CONFIG_HOME", "bad-profile")], &["profile.build.swap", "size"]),
        (run(&[]), &[("FOLIOSWAP_MEMORY", "plenty")], &["FOLIOSWAP_MEMORY=plenty", "not a size"]),
        (
            run(&["-m", "64M"]),
            &[("FOLIOSWAP_SWAP", "zarm")],
            &["FOLIOSWAP_SWAP=zarm", "did you mean 'zram'?"],
        ),
        (run(&["-m", "64M"]), &[("FOLIOSWAP_STATS", "1")], &["FOLIOSWAP_STATS=1", "short, all, off"]),
        (run(&["-m", "64M", "--swap", "fiel:/var/tmp"]), &[], &["did you mean 'file'?"]),
        (run(&["-m", "64M", "--swap", "ram,sise=1G"]), &[], &["did you mean 'size'?"]),
        (run(&["-m", "64M", "--thp", "64k=alwys"]), &[], &["did you mean 'always'?"]),
        (run(&["-m", "64M", "--repotr", "x"]), &[], &["--report"]),
        (run(&["-m", "64M", "--weight", "0"]), &[], &["--weight", "1 to 10000"]),
        (of(&["balance"]), &[], &["--memory"]),
        (of(&["balance", "-m", "4M"]), &[], &["8M"]),
        (of(&["balance", "-m", "0.001%"]), &[], &["too small to share", "8M"]),
        (of(&["balance", "-m", "1000T"]), &[], &["more than the RAM of this machine"]),
        (of(&["balance", "-m", "64M", "train=0"]), &[], &["1 to 10000"]),
        (of(&["balance", "-m", "64M", "a/b"]), &[], &["letters, digits"]),
        (of(&["balance", "-m", "64M", "train", "train=7"]), &[], &["train", "twice"]),
        (of(&["balance", "-m", "64M", "-d", "0"]), &[], &["0.1 to 60"]),
        (of(&["mout", "x"]), &[], &["mount"]),
        (of(&["help", "device"]), &[], &["did you mean 'devices'?"]),
        (of(&["advise", "-m", "64M"]), &[], &["CMD"]),
        (of(&["advise", "-m", "64M", "--report", "x", "true"]), &[], &["--report"]),
    ];
    assert!(cases.len() >= 25);
    for (arguments, environment, words) in cases {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut command = folioswap(&arguments, &scratch);
        for (name, value) in environment {
            let value = if *name == "XDG_CONFIG_HOME" { scratch.path(value) } else { (*value).to_owned() };
            command.env(name, value);
        }
        let (status, out, text) = texts(&command.output().expect("it starts"));
        assert_eq!((status, out.as_str()), (125, ""), "{arguments:?} {environment:?}: {text}");
        for word in words {
            assert!(text.contains(word), "{arguments:?} {environment:?}: no '{word}' in {text}");
        }
        assert!(!fs::exists(&witness).expect("to be seen"), "{arguments:?}: the program ran");
    }
}

#[test]
fn the_summary_has_the_sentence_and_few_lines() {
    let scratch = Scratch::new("summary");
    let program = walker(96, 6);
    let run = folioswap(&["run", "-m", "48M", "--stats", "python3", "-c", &program], &scratch).output();
    let (status, out, text) = texts(&run.expect("it starts"));
    assert_eq!((status, out.as_str()), (0, ""), "{text}");
    assert!(text.lines().count() <= 12, "{text}");
    for word in [
        "of the wall time was spent waiting for pages (",
        "swapped out",
        "traffic",
        "another limit",
        "run well",
    ] {
        assert!(text.contains(word), "no '{word}' in {text}");
    }
}

#[test]
fn a_run_that_stays_within_its_limit_says_so_in_short() {
    let scratch = Scratch::new("short");
    let run = folioswap(&["run", "-m", "64M", "true"], &scratch).env("FOLIOSWAP_STATS", "short").output();
    let (status, _, text) = texts(&run.expect("it starts"));
    assert_eq!(status, 0, "{text}");
    assert!(text.contains("swapped out   nothing") && text.contains("no time was spent waiting"), "{text}");
    assert!(!text.contains("another limit"), "{text}");
}

#[test]
fn statistics_can_go_to_standard_output() {
    let scratch = Scratch::new("output");
    let run = folioswap(&["run", "-m", "64M", "--stats-json", "-", "true"], &scratch).output();
    let (status, out, text) = texts(&run.expect("it starts"));
    assert_eq!((status, text.as_str()), (0, ""));
    let stats: Value = serde_json::from_str(&out).expect("JSON and nothing else");
    assert_eq!(stats["limit_bytes"], 64 << 20);
    assert_eq!(stats["refaults"]["curve"].as_array().map(Vec::len), Some(0));
}

#[test]
fn the_limit_comes_from_the_nearest_source() {
    let scratch = Scratch::new("sources");
    fs::write(scratch.path("folioswap.toml"), "memory = '40M'\n[profile.p]\nmemory = '48M'\n")
        .expect("written");
    let limit = |options: &[&str], variable: Option<&str>| {
        let arguments = [&["run", "--stats-json", "-"], options, &["true"]].concat();
        let mut command = folioswap(&arguments, &scratch);
        variable.into_iter().for_each(|value| {
            command.env("FOLIOSWAP_MEMORY", value);
        });
        let (status, out, text) = texts(&command.output().expect("it starts"));
        assert_eq!(status, 0, "{text}");
        serde_json::from_str::<Value>(&out).expect("JSON")["limit_bytes"].as_u64().expect("a number") >> 20
    };
    assert_eq!(limit(&[], None), 40);
    assert_eq!(limit(&["--profile", "p"], None), 48);
    assert_eq!(limit(&["--profile", "p"], Some("56M")), 56);
    assert_eq!(limit(&["--profile", "p", "-m", "64M"], Some("56M")), 64);
}

#[test]
fn advice_has_the_measured_limit_and_larger_ones() {
    let scratch = Scratch::new("advice");
    let program = walker(96, 8);
    let run = folioswap(&["advise", "-m", "48M", "python3", "-c", &program], &scratch).output();
    let (status, _, text) = texts(&run.expect("it starts"));
    assert_eq!(status, 0, "{text}");
    for word in ["LIMIT", "48.0MiB", "measured", "predicted", "to run well"] {
        assert!(text.contains(word), "no '{word}' in {text}");
    }
}

#[test]
fn advice_for_a_program_that_fits_says_so() {
    let scratch = Scratch::new("fits");
    let run = folioswap(&["advise", "-m", "64M", "true"], &scratch).output();
    let (status, _, text) = texts(&run.expect("it starts"));
    assert_eq!(status, 0, "{text}");
    assert!(text.contains("this limit costs nothing"), "{text}");
}

/// Only waits for pages, for longer than the watch needs.
const THRASHER: &str = "import time, random\nb = bytearray(random.Random(1).randbytes(1 << 20)) * 96\nend = time.time() + 25\n\
                        r = random.Random(2)\nwhile time.time() < end: b[r.randrange(len(b))] = 1";

#[test]
fn a_run_that_thrashes_is_told_once_what_it_needs() {
    let scratch = Scratch::new("thrash");
    let run = folioswap(&["run", "-m", "40M", "python3", "-c", THRASHER], &scratch).output();
    let (status, _, text) = texts(&run.expect("it starts"));
    assert_eq!(status, 0, "{text}");
    assert_eq!(text.matches("it does little but wait for pages").count(), 1, "{text}");
    assert!(text.contains("to run well"), "{text}");
}

#[test]
fn a_run_that_thrashes_is_ended_where_that_is_asked_for() {
    let scratch = Scratch::new("thrash-end");
    let json = scratch.0.join("stats.json");
    let options = ["run", "-m", "40M", "--thrashing", "end", "--stats-json", json.to_str().expect("text")];
    let run = folioswap(&[&options[..], &["python3", "-c", THRASHER]].concat(), &scratch).output();
    let (status, _, text) = texts(&run.expect("it starts"));
    assert_eq!((status, text.lines().count()), (137, 1), "{text}");
    for words in ["it does little but wait for pages", "to run well", "ended CMD", "--thrashing end"] {
        assert!(text.contains(words), "no '{words}' in {text}");
    }
    let json = std::fs::read_to_string(json).expect("statistics");
    assert!(json.contains("\"end\": \"thrashed\"") || json.contains("\"end\":\"thrashed\""), "{json}");
}

#[test]
fn help_knows_topics_and_commands() {
    let scratch = Scratch::new("help");
    for (words, wanted) in [
        (&["help", "devices"][..], "encrypt=yes"),
        (&["help", "sizes"], "64k=always"),
        (&["help", "configuration"], "[profile.build]"),
        (&["help", "run"], "--timeline"),
        (&["help", "lab", "replay"], "--policy"),
        (&["help"], "Examples:"),
    ] {
        let (status, out, text) = texts(&folioswap(words, &scratch).output().expect("it starts"));
        assert_eq!((status, text.as_str()), (0, ""), "{words:?}");
        assert!(out.contains(wanted), "{words:?}: {out}");
        let widest = out.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{words:?}: {widest:?} columns");
    }
}
