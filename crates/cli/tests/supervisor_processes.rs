//! Exit statuses, signals, job control, and the processes left when any one of them is killed.

mod supervisor_support;

use std::{
    fs,
    io::{Read, Write},
    os::unix::process::{CommandExt, ExitStatusExt},
    process::Stdio,
    time::Duration,
};
use supervisor_support::{Run, child_of, kill, state, text_of, wait_until};

#[test]
fn statuses_are_those_of_cmd() {
    for (cmd, status) in [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("kill -9 $$", 137)] {
        let mut run = Run::new(&[], &["sh", "-c", cmd]);
        assert_eq!(run.output().0, status, "{cmd}");
        let end = if status > 128 { "signalled" } else { "exited" };
        assert_eq!(run.stats()["end"], end);
        assert_eq!(run.stats()["status"], status);
        assert!(run.processes().is_empty(), "nothing is left when run returns");
    }
}

#[test]
fn refusals_have_the_statuses_of_env() {
    for (cmd, status, words) in [
        ("no-such-program", 127, "not found"),
        ("/no/such/program", 127, "No such file"),
        ("/etc/passwd", 126, "cannot be executed"),
        ("/etc", 126, "cannot be executed"),
    ] {
        let (got, _, text) = Run::new(&[], &[cmd]).output();
        assert_eq!(got, status, "{cmd}");
        assert!(text.contains(words) && text.starts_with("folioswap: "), "{text}");
    }
    for options in
        [["--memory", "1"], ["--memory", "12Q"], ["--swap-dir", "/dev/shm"], ["--memory", "99999P"]]
    {
        let mut run = Run::new(&[], &["true"]);
        let program = run.command.get_program().to_owned();
        run.command = std::process::Command::new(program);
        run.command.args(["run", "--agent", "none"]).args(options);
        if options[0] != "--memory" {
            run.command.args(["--memory", "64M"]);
        }
        let (status, _, text) = {
            run.command.arg("true");
            run.output()
        };
        assert_eq!(status, 125, "{options:?}: {text}");
        assert!(!text.is_empty());
    }
}

#[test]
fn a_script_without_an_interpreter_line_runs_in_the_shell() {
    let mut run = Run::new(&[], &[]);
    let script = run.file("script");
    fs::write(&script, "echo \"$1\"\n").expect("written");
    rustix::fs::chmod(&script, rustix::fs::Mode::from_raw_mode(0o755)).expect("chmod");
    run.command.arg(&script).arg("hello");
    assert_eq!(run.output(), (0, "hello\n".to_owned(), String::new()));
}

#[test]
fn cmd_finds_signals_and_descriptors_as_they_were() {
    let script = "grep -E 'SigBlk|SigIgn' /proc/self/status; ls /proc/self/fd | wc -l";
    let plain =
        std::process::Command::new("sh").args(["-c", script]).stdin(std::process::Stdio::null()).output();
    let plain = String::from_utf8(plain.expect("sh runs").stdout).expect("text");
    assert_eq!(Run::new(&[], &["sh", "-c", script]).output().1, plain);
}

#[test]
fn run_returns_at_once_and_the_supervisor_stays() {
    let mut run = Run::new(&[], &["sh", "-c", "cat \"$GO\" >/dev/null 2>&1 & exit 3"]);
    let go = run.file("go");
    rustix::fs::mknodat(rustix::fs::CWD, &go, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a fifo");
    run.command.env("GO", &go);
    // The output is returned, so standard output and error have reached their end too.
    assert_eq!(run.output().0, 3);
    assert_eq!(run.processes().len(), 2, "the waiter and its supervisor");
    fs::write(&go, "").expect("written");
    run.assert_all_gone();
}

#[test]
fn a_pipeline_ends_when_cmd_lets_go_of_it() {
    let mut run =
        Run::new(&[], &["sh", "-c", "echo out; exec >&-; while [ ! -e \"$GO\" ]; do sleep 0.02; done"]);
    let go = run.file("go");
    run.command.env("GO", &go);
    let mut child = run.spawn();
    let mut text = String::new();
    child.stdout.take().expect("piped").read_to_string(&mut text).expect("read");
    assert_eq!(text, "out\n");
    assert!(
        child.try_wait().expect("a child").is_none(),
        "neither front nor supervisor holds standard output"
    );
    fs::write(&go, "").expect("written");
    child.wait().expect("waited");
}

#[test]
fn a_signal_to_the_front_alone_is_passed_on() {
    let script = "trap 'echo got >> \"$OUT\"' USR1; trap 'exit 9' TERM; echo ready > \"$READY\"; while :; do sleep 0.02; done";
    let mut run = Run::new(&[], &["sh", "-c", script]);
    let (out, ready) = (run.file("out"), run.file("ready"));
    run.command.env("OUT", &out).env("READY", &ready);
    let mut child = run.spawn();
    text_of(&ready);
    kill(child.id() as i32, libc::SIGUSR1);
    assert_eq!(text_of(&out), "got\n");
    kill(child.id() as i32, libc::SIGTERM);
    assert_eq!(child.wait().expect("waited").code(), Some(9));
}

#[test]
fn a_signal_to_the_whole_group_arrives_once() {
    let script =
        "trap 'echo got >> \"$OUT\"' INT TERM; echo ready > \"$READY\"; while :; do sleep 0.02; done";
    let mut run = Run::new(&[], &["sh", "-c", script]);
    let (out, ready) = (run.file("out"), run.file("ready"));
    run.command.env("OUT", &out).env("READY", &ready).process_group(0);
    let mut child = run.spawn();
    text_of(&ready);
    for (count, signal) in [(1, libc::SIGINT), (2, libc::SIGTERM)] {
        kill(-(child.id() as i32), signal);
        wait_until("the signal arrived", || text_of(&out).lines().count() >= count);
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(text_of(&out).lines().count(), count);
    }
    kill(child.id() as i32, libc::SIGKILL);
    child.wait().expect("waited");
    run.assert_all_gone();
}

#[test]
fn the_front_stops_and_continues_with_cmd() {
    // CMD waits without a child. Whoever has made one by vfork(2) cannot stop before that one has
    // called exec(2), which a stopped child never does, under folioswap or not.
    let script = "echo ready > \"$READY\"; read -r line; exit 4";
    let mut run = Run::new(&[], &["sh", "-c", script]);
    let ready = run.file("ready");
    run.command.env("READY", &ready).process_group(0).stdin(Stdio::piped());
    let mut child = run.spawn();
    text_of(&ready);
    kill(-(child.id() as i32), libc::SIGTSTP);
    wait_until("the front stops", || state(child.id()) == 'T');
    assert_ne!(state(child_of(child.id())), 'T', "the supervisor goes on");
    kill(-(child.id() as i32), libc::SIGCONT);
    child.stdin.take().expect("piped").write_all(b"go\n").expect("written");
    assert_eq!(child.wait().expect("waited").code(), Some(4));
}

const TREE: &str =
    "setsid sleep 60 & (setsid sh -c 'sleep 61 & sleep 62' &) ; echo ready > \"$READY\"; sleep 63";

fn tree(run: &mut Run) -> std::process::Child {
    let ready = run.file("ready");
    run.command.env("READY", &ready);
    let child = run.spawn();
    text_of(&ready);
    wait_until("the tree is complete", || run.processes().len() >= 8);
    child
}

#[test]
fn killing_the_front_ends_everything() {
    let mut run = Run::new(&[], &["sh", "-c", TREE]);
    let mut child = tree(&mut run);
    kill(child.id() as i32, libc::SIGKILL);
    assert_eq!(child.wait().expect("waited").signal(), Some(libc::SIGKILL));
    run.assert_all_gone();
}

#[test]
fn killing_the_supervisor_ends_everything() {
    let mut run = Run::new(&[], &["sh", "-c", TREE]);
    let child = tree(&mut run);
    kill(child_of(child.id()) as i32, libc::SIGKILL);
    let output = child.wait_with_output().expect("waited");
    assert_eq!(output.status.code(), Some(125));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains("the supervisor process was killed"), "{text}");
    assert!(run.processes().is_empty());
}

#[test]
fn front_and_supervisor_are_small() {
    let mut run = Run::new(&["--stats=all"], &["sleep", "60"]);
    let mut child = run.spawn();
    let supervisor = child_of(child.id());
    std::thread::sleep(Duration::from_millis(400));
    let anonymous = |pid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("alive");
        let line =
            status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("RssAnon").trim().to_owned();
        line.split(' ').next().and_then(|number| number.parse::<u64>().ok()).expect("a number")
    };
    let (front, supervisor) = (anonymous(child.id()), anonymous(supervisor));
    kill(child.id() as i32, libc::SIGKILL);
    child.wait().expect("waited");
    run.assert_all_gone();
    assert!(front < 2048 && supervisor < 3072, "front {front} kB, supervisor {supervisor} kB");
}
