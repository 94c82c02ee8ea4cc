//! The path by which the agent is preloaded: it outlives the run in somebody's environment, and
//! must not come to mean another file then.

mod supervisor_support;

use folioswap_test_support::skipping;
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
};
use supervisor_support::{MARK, Run};

/// A shared object that this program has loaded, and that a shell has not.
fn object() -> String {
    let maps = fs::read_to_string("/proc/self/maps").expect("maps");
    let line = maps.lines().find(|line| line.contains("libgcc_s")).expect("loaded here").to_owned();
    line.split_whitespace().last().expect("a path").to_owned()
}

/// The supervisor's process id in the path of the agent, and the rest behind its descriptors.
fn parts(path: &str) -> (u32, String) {
    let rest = path.strip_prefix("/proc/").expect("by way of proc");
    let (pid, rest) = rest.split_once("/fd/").expect("by way of a descriptor");
    (pid.parse().expect("a process"), rest.to_owned())
}

/// Runs a script with the agent; returns its lines.
fn lines(run: &mut Run) -> Vec<String> {
    let (status, out, err) = run.output();
    assert_eq!(status, 0, "{out}{err}");
    assert!(!err.contains("ld.so"), "{err}");
    out.lines().map(str::to_owned).collect()
}

fn path_of_a_run() -> String {
    let mut run = Run::new(&["--agent", &object()], &["sh", "-c", "echo \"$LD_PRELOAD\""]);
    run.command.env_remove("LD_PRELOAD");
    lines(&mut run).remove(0)
}

#[test]
fn each_run_has_another_name() {
    let (first, second) = (parts(&path_of_a_run()).1, parts(&path_of_a_run()).1);
    assert_ne!(first, second, "besides the process id");
}

/// A process with the number of a supervisor that is gone has a shared object as each of its
/// descriptors. A program that is started with the old environment does not load it.
#[test]
fn another_process_with_the_supervisors_number_is_not_loaded() {
    let path = path_of_a_run();
    let object = object();
    let script = format!(
        "{} echo ready; read line",
        (3..=9).map(|number| format!("exec {number}<{object};")).collect::<String>()
    );
    let mut other = Command::new("sh");
    other.arg("-c").arg(script).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut other = other.spawn().expect("started");
    let mut ready = String::new();
    BufReader::new(other.stdout.take().expect("piped")).read_line(&mut ready).expect("read");
    assert_eq!(ready, "ready\n");
    let loaded = |path: &str| {
        let output = Command::new("cat").arg("/proc/self/maps").env("LD_PRELOAD", path).output();
        let maps = String::from_utf8(output.expect("run").stdout).expect("text");
        assert!(maps.contains("libc.so"), "it runs: {maps}");
        maps.contains("libgcc_s")
    };
    assert!(loaded(&format!("/proc/{}/fd/3", other.id())), "a plain number would be");
    assert!(!loaded(&format!("/proc/{}/fd/{}", other.id(), parts(&path).1)));
    assert!(!loaded(&path), "nor is anything at the old one");
    other.stdin.take().expect("piped").write_all(b"end\n").expect("written");
    other.wait().expect("waited");
}

/// Root without the right to mount, as in a container: the number of the descriptor is random.
#[test]
fn without_mounts_the_number_is_random() {
    if !rustix::process::geteuid().is_root() || !Path::new("/usr/bin/setpriv").exists() {
        skipping::note("only root can give up the right to mount, by setpriv");
        return;
    }
    let script = "echo \"$LD_PRELOAD\"; sh -c 'grep -c libfolioswap_agent /proc/self/maps'; ulimit -Hn";
    let mut numbers = Vec::new();
    for _ in 0..3 {
        let mut run = Run::new(&["--agent", &object()], &["sh", "-c", script]);
        let words: Vec<_> = run.command.get_args().map(ToOwned::to_owned).collect();
        let mut command = Command::new("/usr/bin/setpriv");
        command.args(["--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"]);
        command
            .arg(env!("CARGO_BIN_EXE_folioswap"))
            .args(words)
            .env(MARK, &run.mark)
            .env_remove("LD_PRELOAD");
        run.command = command;
        run.command.stdin(Stdio::null());
        let lines = lines(&mut run);
        let number: u64 = parts(&lines[0]).1.parse().expect("the agent itself, not a name in a directory");
        assert_ne!(lines[1], "0", "it is loaded after an exec");
        let end = lines[2].parse().unwrap_or(u64::MAX).min(1 << 15);
        assert!((end / 2..end).contains(&number), "{number} of {end}");
        numbers.push(number);
    }
    assert!(numbers[0] != numbers[1] || numbers[1] != numbers[2], "{numbers:?}");
}

#[test]
fn images_after_an_exec_load_it_under_the_same_name() {
    let script = "echo \"$LD_PRELOAD\"; exec sh -c 'echo \"$LD_PRELOAD\"; (exec sh -c \"grep -c libfolioswap_agent /proc/self/maps\")'";
    let mut run = Run::new(&["--agent", &object()], &["sh", "-c", script]);
    run.command.env_remove("LD_PRELOAD");
    let lines = lines(&mut run);
    assert_eq!(lines[0], lines[1]);
    assert_ne!(lines[2], "0");
    assert!(!Path::new(&lines[0]).exists(), "it names nothing after the run");
}
