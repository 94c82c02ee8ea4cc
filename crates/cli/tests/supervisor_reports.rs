//! Statistics, `swapon --show`, unmanaged processes, and groups within groups.

mod supervisor_support;

use folioswap_test_support::skipping;
use std::process::Command;
use supervisor_support::{Run, child_of, text_of, wait_until};

fn folioswap(arguments: &[&str]) -> (i32, String, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_folioswap")).args(arguments).output().expect("folioswap starts");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

#[test]
fn statistics_reach_standard_error_even_when_cmd_closed_its_own() {
    let mut run = Run::new(&["--stats=all"], &["sh", "-c", "exec 2>&-; exit 5"]);
    let (status, out, text) = run.output();
    assert_eq!((status, out.as_str()), (5, ""));
    for word in ["status 5", "NAME", "PRIO", "zram", "pswpout", "peak charge", "64.0 MiB (total)"] {
        assert!(text.contains(word), "{word} in {text}");
    }
    let stats = run.stats();
    for key in ["wall_seconds", "user_seconds", "system_seconds", "peak_charge_bytes"] {
        assert!(stats[key].is_number(), "{key}");
    }
    assert_eq!(stats["limit_bytes"], 64 << 20);
    assert_eq!(stats["devices"][0]["type"], "zram");
    assert_eq!(stats["devices"][1]["type"], "file");
    assert_eq!(stats["sizes"]["64kB"]["swpout"], 0);
}

#[test]
fn without_a_file_there_is_one_device() {
    let mut run = Run::new(&["--swap-max", "0", "--memory-scope", "resident"], &["true"]);
    assert_eq!(run.output().0, 0);
    let stats = run.stats();
    assert_eq!(stats["devices"].as_array().map(Vec::len), Some(1));
    assert_eq!(stats["scope"], "resident");
}

#[test]
fn an_unwritable_statistics_file_is_refused_before_anything_starts() {
    let mut run = Run::new(&[], &[]);
    let witness = run.file("witness");
    run.command = Command::new(env!("CARGO_BIN_EXE_folioswap"));
    run.command
        .args(["run", "-m", "64M", "--agent", "none", "--stats-json", "/no/such/dir/x", "touch"])
        .arg(&witness);
    let (status, _, text) = run.output();
    assert_eq!(status, 125);
    assert!(text.contains("/no/such/dir/x"), "{text}");
    assert!(!witness.exists());
}

#[test]
fn processes_without_an_agent_are_counted_and_named() {
    let mut run = Run::new(&[], &["sh", "-c", "sleep 3"]);
    assert_eq!(run.output().0, 0);
    let programs = run.stats()["unmanaged"]["programs"].clone();
    let names: Vec<&str> =
        programs.as_array().expect("a list").iter().filter_map(|entry| entry["name"].as_str()).collect();
    assert!(names.contains(&"sleep") || names.contains(&"sh"), "{programs}");
    assert!(run.stats()["unmanaged"]["peak_bytes"].as_u64() > Some(0));
}

#[test]
fn unmanaged_memory_above_the_limit_is_one_message_and_137() {
    let script = "import time\nx = bytearray(b'x') * (200 << 20)\ntime.sleep(30)";
    let mut run = Run::new(&[], &["python3", "-c", script]);
    let (status, _, text) = run.output();
    assert_eq!(status, 137);
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains("python3") && text.contains("Give at least --memory"), "{text}");
    assert_eq!(run.stats()["end"], "unmanaged_above_limit");
    assert!(run.processes().is_empty());
}

#[test]
fn swapon_shows_running_groups() {
    let script = "echo ready > \"$READY\"; while [ ! -e \"$GO\" ]; do sleep 0.02; done; exit 0";
    let mut run = Run::new(&["--swap-max", "64M"], &["sh", "-c", script]);
    let (ready, go) = (run.file("ready"), run.file("go"));
    run.command.env("READY", &ready).env("GO", &go);
    let mut child = run.spawn();
    text_of(&ready);
    let cmd = child_of(child_of(child.id()));
    for pid in [cmd, child.id()] {
        let (status, text, _) = folioswap(&["swapon", "--show", "--bytes", &pid.to_string()]);
        assert_eq!(status, 0);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["NAME", "TYPE", "SIZE", "USED", "PRIO"]);
        assert_eq!(lines[1], ["zram", "zram", "-", "0", "1"]);
        assert_eq!(lines[2], ["/var/tmp", "file", "67108864", "0", "0"]);
    }
    assert!(folioswap(&["swapon", "--show"]).1.contains("zram"));
    std::fs::write(&go, "").expect("written");
    child.wait().expect("waited");
    let (status, _, text) = folioswap(&["swapon", "--show", "1"]);
    assert_eq!(status, 125);
    assert!(text.contains("process 1 "), "{text}");
}

#[test]
fn a_run_within_a_run_is_refused() {
    let mut run =
        Run::new(&[], &[env!("CARGO_BIN_EXE_folioswap"), "run", "-m", "32M", "--agent", "none", "true"]);
    let (status, _, text) = run.output();
    assert_eq!(status, 125);
    assert!(text.contains("already runs inside"), "{text}");
    // A name left in the environment by a group that has ended does no harm.
    let mut run = Run::new(&[], &["true"]);
    run.command.env("FOLIOSWAP_GROUP", format!("folioswap-{:032x}", 7));
    assert_eq!(run.output().0, 0);
}

#[test]
fn doctor_states_the_same_in_text_and_json() {
    let (status, text, _) = folioswap(&["doctor"]);
    let (json_status, json, _) = folioswap(&["doctor", "--json"]);
    assert_eq!(status, json_status);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["works"], status == 0);
    assert_eq!(text.contains("`folioswap run` works here"), status == 0);
    assert!(json["userfaultfd"]["features"]["MOVE"].is_boolean());
    assert_eq!(json["swap_file"]["contents"], "plain");
    assert!(status != 0 || text.contains("file:/var/tmp,prio=0,encrypt=yes` encrypts it"), "{text}");
}

#[test]
fn completions_and_man_pages_come_out() {
    assert!(folioswap(&["completions", "bash"]).1.contains("--memory-scope"));
    assert!(folioswap(&["man"]).1.contains(".TH folioswap"));
    let run = Run::new(&[], &[]);
    assert_eq!(folioswap(&["man", run.directory.to_str().expect("text")]).0, 0);
    wait_until("a page per command", || run.file("folioswap-run.1").exists());
    let (status, text, _) = folioswap(&["run", "--help"]);
    assert_eq!(status, 0);
    assert!(text.contains("Examples:") && text.contains("Exit status:"));
}

#[test]
fn the_agent_is_preloaded_from_memory_in_front_of_the_users_own() {
    // Any shared object will do for an agent here.
    let object = |name: &str| {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
        let line = maps.lines().find(|line| line.contains(name)).expect("loaded here").to_owned();
        line.split_whitespace().last().expect("a path").to_owned()
    };
    let (agent, users) = (object("libgcc_s"), object("libc.so.6").replace("libc.so.6", "libm.so.6"));
    let script =
        "echo \"$LD_PRELOAD\"; grep -c libfolioswap_agent /proc/$$/maps; grep -c libm.so /proc/$$/maps";
    let mut run = Run::new(&["--agent", &agent], &["sh", "-c", script]);
    run.command.env("LD_PRELOAD", &users);
    let (status, out, err) = run.output();
    assert_eq!(status, 0, "{out}{err}");
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with("/proc/") && lines[0].ends_with(&format!(":{users}")), "{out}");
    assert!(lines[1] != "0" && lines[2] != "0", "both are mapped: {out}{err}");
    assert!(!err.contains("ld.so"), "{err}");
}

#[test]
fn static_programs_without_the_gate_and_foreign_ones_are_refused() {
    let without = &["--gate", "never"];
    let run = Run::new(&[], &[]);
    let source = run.file("p.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").expect("written");
    let program = run.file("static");
    let built = Command::new("cc").arg("-static").arg("-o").arg(&program).arg(&source).output();
    if !built.is_ok_and(|output| output.status.success()) {
        skipping::note("cc -static does not work here");
        return;
    }
    let program = program.to_str().expect("text").to_owned();
    let (status, _, text) = Run::new(without, &[&program]).output();
    assert_eq!(status, 125);
    assert!(text.contains("statically linked"), "{text}");
    // As a descendant the program runs, unmanaged and named.
    let script = format!("{program} && echo ran");
    assert_eq!(Run::new(without, &["sh", "-c", &script]).output().1, "ran\n");
    // The same holds behind an interpreter line.
    let script = run.file("script");
    std::fs::write(&script, format!("#!{program}\n")).expect("written");
    let executable = rustix::fs::Mode::from_raw_mode(0o755);
    rustix::fs::chmod(&script, executable).expect("chmod");
    assert_eq!(Run::new(without, &[script.to_str().expect("text")]).output().0, 125);
    // A 32-bit program: the header of this one with its class changed.
    let mut bytes = std::fs::read(&program).expect("read");
    bytes[4] = 1;
    let foreign = run.file("wide");
    std::fs::write(&foreign, bytes).expect("written");
    rustix::fs::chmod(&foreign, executable).expect("chmod");
    let (status, _, text) = Run::new(&[], &[foreign.to_str().expect("text")]).output();
    assert_eq!(status, 125);
    assert!(text.contains("32-bit"), "{text}");
}

#[test]
fn a_set_user_id_program_is_refused_to_others() {
    // Root owns the file when root runs the tests, and gains nothing by executing it: then only the
    // check for another owner counts.
    let mut run = Run::new(&[], &[]);
    let program = run.file("other");
    std::fs::copy("/bin/true", &program).expect("copied");
    if rustix::fs::chown(&program, Some(rustix::fs::Uid::from_raw(65534)), None).is_err() {
        skipping::note("not root");
        return;
    }
    rustix::fs::chmod(&program, rustix::fs::Mode::from_raw_mode(0o4755)).expect("chmod");
    run.command.arg(&program);
    let (status, _, text) = run.output();
    assert_eq!(status, 125);
    assert!(text.contains("set-user-id"), "{text}");
}
