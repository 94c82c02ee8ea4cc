//! A wrong request is refused with a clear message, and nothing is started by half.

use folioswap_acceptance::job::{self, Engine, Job, Outcome};
use folioswap_acceptance::programs::{self, ForEverybody, c_program, refused, run_folioswap};
use folioswap_acceptance::{MIB, skip};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A directory for the files of one test, removed on drop.
struct ScratchDirectory(PathBuf);

impl ScratchDirectory {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(format!("/var/tmp/folioswap-acc-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("directory");
        ScratchDirectory(path)
    }
    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

#[test]
fn sizes_that_are_none() {
    let scratch = ScratchDirectory::new("sizes");
    let marker = scratch.file("started");
    for size in [
        "",
        " ",
        "abc",
        "-1",
        "-1M",
        "0",
        "0M",
        "1",
        "4K",
        "12X",
        "M",
        "1..5G",
        "1,5G",
        "99999999999999999999",
        "99999999T",
        "0x10M",
        "NaN",
        "inf",
        "1e400",
        "512 M M",
        "\u{663}M",
    ] {
        let words = ["run", "--memory", size, "--", "touch", marker.to_str().expect("UTF-8")];
        let output = run_folioswap(&words);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(125), "--memory {size:?}: {text}");
        assert!(!text.trim().is_empty() && !text.contains("panicked"), "--memory {size:?}: {text}");
        assert!(!marker.exists(), "--memory {size:?}: the program was started");
    }
}

#[test]
fn options_that_are_wrong() {
    let scratch = ScratchDirectory::new("options");
    let marker = scratch.file("started").display().to_string();
    let cases: [&[&str]; 8] = [
        &["run"],
        &["run", "--memory", "64M"],
        &["run", "--memory", "64M", "--"],
        &["run", "--memory"],
        &["run", "--memory", "64M", "--nonsense", "--", "touch", &marker],
        &["run", "--memory", "64M", "--memory-scope", "half", "--", "touch", &marker],
        &["run", "--memory", "64M", "--swap-dir", "/nowhere/at/all", "--", "touch", &marker],
        &["run", "--memory", "64M", "--stats-json", "/nowhere/at/all/stats.json", "--", "touch", &marker],
    ];
    for words in cases {
        refused(&run_folioswap(words), 125, &[]);
        assert!(!Path::new(&marker).exists(), "{words:?}: the program was started");
    }
}

/// Folio sizes: each message names the values that are allowed.
#[test]
fn folio_sizes_that_are_none() {
    let scratch = ScratchDirectory::new("folios");
    let marker = scratch.file("started").display().to_string();
    for (value, words) in [
        ("", &["size=word"][..]),
        ("always", &["size=word", "64k=always"]),
        ("64k=always,", &["size=word"]),
        ("4k=always", &["'4k'", "8k", "64k", "2m", "all"]),
        ("4m=always", &["'4m'", "2m"]),
        ("64k=sometimes", &["sometimes", "always", "inherit", "madvise", "never"]),
        ("64k=always,64K=never", &["64k", "twice"]),
        ("all=never,all=never", &["all", "twice"]),
    ] {
        let option = format!("--thp={value}");
        let output = run_folioswap(&["run", "--memory", "64M", &option, "--", "touch", &marker]);
        refused(&output, 125, &[words, &["--thp"]].concat());
        assert!(!Path::new(&marker).exists(), "{value}: the program was started");
    }
    let twice = ["run", "--memory", "64M", "--thp=all=never", "--thp=all=never", "--", "touch", &marker];
    refused(&run_folioswap(&twice), 125, &["--thp"]);
    assert!(!Path::new(&marker).exists());
    let right = ["run", "--memory", "64M", "--thp=64K=always,2m=inherit,all=never", "--", "true"];
    assert!(run_folioswap(&right).status.success());
}

#[test]
fn page_clusters_that_are_none() {
    let scratch = ScratchDirectory::new("page-cluster");
    let marker = scratch.file("started").display().to_string();
    for (value, range) in
        [("6", "0..=5"), ("-1", "0..=5"), ("4294967296", "0..=5"), ("x", ""), ("", ""), ("1.5", "")]
    {
        let option = format!("--page-cluster={value}");
        let output = run_folioswap(&["run", "--memory", "64M", &option, "--", "touch", &marker]);
        refused(&output, 125, &["--page-cluster", range]);
        assert!(!Path::new(&marker).exists(), "{value}: the program was started");
    }
    assert!(run_folioswap(&["run", "--memory", "64M", "--page-cluster", "0", "--", "true"]).status.success());
}

#[test]
fn what_thrashing_cannot_do() {
    let scratch = ScratchDirectory::new("thrashing");
    let marker = scratch.file("started").display().to_string();
    for value in ["stop", "", "10s"] {
        let option = format!("--thrashing={value}");
        let output = run_folioswap(&["run", "--memory", "64M", &option, "--", "touch", &marker]);
        refused(&output, 125, &["--thrashing", "tell", "end"]);
        assert!(!Path::new(&marker).exists(), "{value}: the program was started");
    }
}

/// Directories that cannot hold a swap file: each message names the directory and the option.
#[test]
fn swap_directories_that_are_none() {
    let scratch = ScratchDirectory::new("directories");
    let file = scratch.file("file");
    fs::write(&file, "text").expect("file");
    let marker = scratch.file("started").display().to_string();
    for directory in ["/dev/shm", "/proc", "/sys", "/nowhere/at/all", &file.display().to_string()] {
        let words = ["run", "--memory", "64M", "--swap-dir", directory, "--", "touch", &marker];
        refused(&run_folioswap(&words), 125, &[directory, "--swap-dir"]);
        assert!(!Path::new(&marker).exists(), "{directory}: the program was started");
        // Without a file the directory does not matter.
        let words = ["run", "--memory", "64M", "--swap-dir", directory, "--swap-max", "0", "--", "true"];
        assert!(run_folioswap(&words).status.success(), "{directory}");
    }
    let words = ["run", "--memory", "64M", "--swap-dir", "", "--", "touch", &marker];
    refused(&run_folioswap(&words), 125, &["--swap-dir"]);
    for most in ["-1", "", "x", "99999999999T"] {
        let most = format!("--swap-max={most}");
        refused(
            &run_folioswap(&["run", "--memory", "64M", &most, "--", "touch", &marker]),
            125,
            &["--swap-max"],
        );
    }
    assert!(!Path::new(&marker).exists());
}

/// Statistics that cannot be written are a refusal before the start and a message at the end; the
/// program's status stays.
#[test]
fn statistics_that_cannot_be_written() {
    let scratch = ScratchDirectory::new("statistics");
    let marker = scratch.file("started").display().to_string();
    for path in ["/", "/proc/statistics", ""] {
        let path = format!("--stats-json={path}");
        refused(
            &run_folioswap(&["run", "--memory", "64M", &path, "--", "touch", &marker]),
            125,
            &["--stats-json"],
        );
    }
    assert!(!Path::new(&marker).exists());
    let words = ["run", "--memory", "64M", "--stats-json", "/dev/full", "--", "sh", "-c", "exit 7"];
    refused(&run_folioswap(&words), 7, &["--stats-json", "space"]);
}

/// Runs `folioswap run` after `before`, in a shell that sets limits or closes streams.
fn after(before: &str, command: &str) -> Output {
    let line = format!("{before}; exec \"$0\" run --memory 64M -- {command}");
    Command::new("sh").args(["-c", &line]).arg(programs::folioswap()).output().expect("a shell")
}

/// Limits that are too low for the agent are refused with the command that raises them; the
/// program's own limits are unchanged.
#[test]
fn resource_limits() {
    for few in [8, 12, 16, 31] {
        refused(&after(&format!("ulimit -n {few}"), "echo started"), 125, &["ulimit -n"]);
    }
    for small in [0, 100] {
        refused(&after(&format!("ulimit -f {small}"), "echo started"), 125, &["ulimit -f"]);
    }
    for (limits, expected) in [
        ("ulimit -n 32", "32 unlimited"),
        ("ulimit -S -n 16", "16 unlimited"),
        ("ulimit -S -f 0", "1024 0"),
        ("ulimit -f 100000", "1024 100000"),
    ] {
        let limits =
            if limits.contains("-n") { limits.to_owned() } else { format!("ulimit -S -n 1024; {limits}") };
        let output = after(&limits, "sh -c 'echo $(ulimit -n) $(ulimit -f); kill -s XFSZ $$; echo survived'");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(text, format!("{expected}\n"), "{limits}: {output:?}");
        assert_eq!(output.status.code(), Some(128 + libc::SIGXFSZ), "{limits}: {output:?}");
    }
    // With too little address space for the agent the program runs all the same, or is refused with
    // a message.
    let output = after("ulimit -v 20000", "echo started");
    let started = output.status.success() && output.stdout == b"started\n";
    assert!(started || output.status.code() == Some(125) && !output.stderr.is_empty(), "{output:?}");
}

/// Closed standard streams stay closed for the program, and no descriptor of ours takes their
/// place.
#[test]
fn closed_standard_streams() {
    let scratch = ScratchDirectory::new("streams");
    let list = scratch.file("list").display().to_string();
    let command =
        format!("sh -c 'for n in 0 1 2; do test -e /proc/$$/fd/$n && echo $n >> {list}; done; exit 5'");
    for (close, open) in [("<&-", "1\n2\n"), (">&-", "0\n2\n"), ("2>&-", "0\n1\n"), ("<&- >&- 2>&-", "")] {
        fs::write(&list, "").expect("file");
        let output = after(&format!("exec {close}"), &command);
        assert_eq!(output.status.code(), Some(5), "{close}: {output:?}");
        assert_eq!(fs::read_to_string(&list).expect("list"), open, "{close}");
    }
}

#[test]
fn programs_that_cannot_be_run() {
    let scratch = ScratchDirectory::new("programs");
    refused(
        &run_folioswap(&["run", "--memory", "64M", "--", "/nowhere/nothing"]),
        127,
        &["/nowhere/nothing"],
    );
    refused(
        &run_folioswap(&["run", "--memory", "64M", "--", "no-such-program-anywhere"]),
        127,
        &["no-such-program"],
    );
    let plain = scratch.file("plain");
    fs::write(&plain, "text").expect("file");
    let plain = plain.display().to_string();
    refused(&run_folioswap(&["run", "--memory", "64M", "--", &plain]), 126, &["plain"]);
    refused(&run_folioswap(&["run", "--memory", "64M", "--", "/var"]), 126, &["/var"]);
    let broken = scratch.file("broken");
    fs::write(&broken, b"\x7fELF and nothing that follows").expect("file");
    fs::set_permissions(&broken, fs::Permissions::from_mode(0o755)).expect("chmod");
    let output = run_folioswap(&["run", "--memory", "64M", "--", &broken.display().to_string()]);
    // A shell may be given a file that the kernel cannot execute, as execvp(3) does; the status is
    // then 126 or 127.
    assert!(matches!(output.status.code(), Some(125..=127)), "{output:?}");
    let interpreter = scratch.file("script");
    fs::write(&interpreter, "#!/nowhere/interpreter\n").expect("file");
    fs::set_permissions(&interpreter, fs::Permissions::from_mode(0o755)).expect("chmod");
    let output = run_folioswap(&["run", "--memory", "64M", "--", &interpreter.display().to_string()]);
    assert!(matches!(output.status.code(), Some(126 | 127)), "{output:?}");
}

/// The gate alone manages them.
#[test]
fn static_programs_are_refused_without_the_gate() {
    let program = c_program("static", "", &["-static"]).display().to_string();
    assert!(Command::new(&program).output().expect("it runs alone").status.success());
    let output = run_folioswap(&["run", "--memory", "64M", "--gate", "never", "--", &program]);
    refused(&output, 125, &["static", "--gate never"]);
    assert!(output.stdout.is_empty(), "it was started");
}

/// Milliseconds that an unmanaged descendant stays. Walks of the tree some 100 ms apart find it,
/// the second of which must come 150 ms after the first that saw it. After a walk that the machine
/// made expensive the next one may be 2 s away.
const STAY: u32 = 2500;

/// As a descendant the program runs unmanaged then, counts towards the limit, and is reported.
#[test]
fn a_static_descendant_is_reported() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    let program = c_program("static", "", &["-static"]).display().to_string();
    let outcome = Job::new(["sh", "-c", &format!("{program} {STAY} && {program} {STAY}")])
        .option("--gate")
        .option("never")
        .option("--stats=all")
        .within(64 * MIB);
    assert_eq!(outcome.text(), "static ok\nstatic ok\n", "{}", outcome.describe());
    assert!(outcome.stderr.contains("unmanaged"), "not reported: {}", outcome.describe());
    let unmanaged = &outcome.stats.as_ref().expect("statistics")["unmanaged"];
    assert_eq!(unmanaged["processes"].as_u64(), Some(2), "in the JSON: {unmanaged}");
    assert!(unmanaged["peak_bytes"].as_u64() > Some(0), "in the JSON: {unmanaged}");
}

/// A program whose dynamic linker loads nothing says nothing either; `run` does.
#[test]
fn a_program_that_never_joins_is_named() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    let linker = c_program("linker", "", &["-static", "-nostdlib", "-ffreestanding"]);
    let flag = format!("-Wl,--dynamic-linker={}", linker.display());
    let program = c_program("static", "-of-another-linker", &[&flag]).display().to_string();
    let output = run_folioswap(&["run", "--memory", "64M", "--", &program]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        text.starts_with("folioswap: CMD ran without being managed") && text.lines().count() == 1,
        "{text}"
    );
}

/// Without the gate the dynamic linker of musl loads the agent, which leaves the program alone.
#[test]
fn a_descendant_of_another_c_library_runs_and_is_reported() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    let scratch = ScratchDirectory::new("musl");
    let program = scratch.file("musl");
    let source = programs::crate_directory().join("c/static.c");
    let Some(compiler) = programs::which("musl-gcc") else { skip!("musl-gcc is not installed") };
    let compiled = Command::new(compiler).arg("-o").arg(&program).arg(source).status();
    assert!(compiled.expect("it starts").success());
    let program = program.display().to_string();
    refused(&run_folioswap(&["run", "--memory", "64M", "--gate", "never", "--", &program]), 125, &["musl"]);
    let script = format!("{program} {STAY} && sh -c '{program} 1'");
    let job = Job::new(["sh", "-c", &script]).option("--gate").option("never");
    let outcome = job.option("--stats=all").within(64 * MIB);
    assert_eq!(outcome.text(), "static ok\nstatic ok\n", "{}", outcome.describe());
    assert!(outcome.stderr.contains("musl"), "not reported: {}", outcome.describe());
}

#[test]
fn set_user_id_programs_are_refused() {
    // SAFETY: no memory effects.
    if unsafe { libc::geteuid() } != 0 {
        skip!("only root can make a set-user-id program of another user");
    }
    let scratch = ScratchDirectory::new("setuid");
    let program = scratch.file("true");
    fs::copy("/bin/true", &program).expect("copy");
    chown(&program, Some(65534), Some(65534)).expect("chown");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).expect("chmod");
    let output = run_folioswap(&["run", "--memory", "64M", "--", &program.display().to_string()]);
    refused(&output, 125, &["set-user-id"]);
}

/// As a descendant the program runs unmanaged, because the dynamic linker does not load the agent
/// into it.
#[test]
fn a_set_user_id_descendant_is_reported() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    // SAFETY: no memory effects.
    if unsafe { libc::geteuid() } != 0 {
        skip!("only root can make a set-user-id program of another user");
    }
    let scratch = ScratchDirectory::new("setuid-descendant");
    let program = scratch.file("descendant");
    fs::copy(c_program("static", "-dynamic", &[]), &program).expect("copy");
    chown(&program, Some(65534), Some(65534)).expect("chown");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).expect("chmod");
    let script = format!("{} {STAY}; echo after", program.display());
    let outcome = Job::new(["sh", "-c", &script]).option("--stats=all").within(64 * MIB);
    assert_eq!(outcome.text(), "static ok\nafter\n", "{}", outcome.describe());
    assert!(outcome.stderr.contains("descendant (set-user-id)"), "not reported: {}", outcome.describe());
    let unmanaged = &outcome.stats.as_ref().expect("statistics")["unmanaged"];
    assert_eq!(unmanaged["processes"].as_u64(), Some(1), "in the JSON: {unmanaged}");
    assert!(unmanaged["peak_bytes"].as_u64() > Some(8 * MIB), "in the JSON: {unmanaged}");
}

/// Without any limit there is nothing to hold, and `run` refuses.
#[test]
fn no_limit_at_all() {
    let job = Job::new(["true"]);
    let outcome = job.under(Engine::Folioswap { memory: None, scope: "total" });
    assert_eq!(outcome.code, Some(125), "{}", outcome.describe());
    assert!(outcome.stderr.contains("--memory"), "{}", outcome.describe());
}

/// Without `--memory` the limit of the cgroup is taken and held, so that the kernel has nothing to
/// kill.
#[test]
fn the_limit_of_the_cgroup() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    if folioswap_peer::controller().is_none() {
        skip!("no memory cgroup");
    }
    let touch = env!("CARGO_BIN_EXE_acc-touch");
    let job = Job::new([touch, "--size", "256M", "--kind", "mixed"]).cgroup_limit(96 * MIB);
    let outcome = job.under(Engine::Folioswap { memory: None, scope: "total" });
    outcome.check();
    assert_eq!(outcome.oom_kills, 0, "{}", outcome.describe());
    job::check_swapped(&outcome, 150 * MIB);
    let stats = outcome.stats.expect("statistics").to_string();
    assert!(stats.contains(&(96 * MIB).to_string()), "the limit found is not in {stats}");
}

/// A limit above the container's is said to be so, and so is what the kernel does at the lower one.
#[test]
fn a_limit_that_the_cgroup_does_not_allow() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    if folioswap_peer::controller().is_none() {
        skip!("no memory cgroup");
    }
    let touch = env!("CARGO_BIN_EXE_acc-touch");
    let job = Job::new([touch, "--size", "256M", "--kind", "mixed"]).cgroup_limit(64 * MIB);
    // Sometimes the kernel kills the command too, before the memory of its first choice is free.
    // Then nobody is left to say so.
    let outcome = (0..5)
        .map(|_| job.under(Engine::Folioswap { memory: Some(512 * MIB), scope: "total" }))
        .find(|outcome| outcome.signal != Some(libc::SIGKILL))
        .expect("the command is not the kernel's choice each time");
    assert!(outcome.oom_kills > 0 && outcome.code != Some(0), "{}", outcome.describe());
    assert!(outcome.stderr.contains("not below the limit of this container"), "{}", outcome.describe());
    assert!(outcome.stderr.contains("the kernel killed 1 process "), "{}", outcome.describe());
    let fits = Job::new(["true"]).cgroup_limit(64 * MIB);
    let outcome = fits.under(Engine::Folioswap { memory: Some(48 * MIB), scope: "total" });
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{}", outcome.describe());
}

fn as_nobody(folioswap: &Path, words: &[&str]) -> Outcome {
    let mut command = vec![folioswap.display().to_string()];
    command.extend(words.iter().map(|&word| word.to_owned()));
    Job::new(command).user(65534).under(Engine::Nothing)
}

/// What cannot be compared without root is refused at once, with the way out.
#[test]
fn a_comparison_without_root() {
    // SAFETY: no memory effects.
    if unsafe { libc::geteuid() } != 0 {
        skip!("only root can become a user without permission");
    }
    let copy = ForEverybody::new("peer");
    let copy = copy.path();
    let small = ["bench", "touch", "--size", "32M", "--limit", "16M", "--rounds", "1", "--kind", "zero"];
    let words = [&small[..], &["--phases", "fill", "--peer", "kernel"]].concat();
    // Without any permission folioswap runs, and nothing is compared: that is said once.
    let denied = as_nobody(copy, &words);
    assert_eq!(denied.code, Some(125), "{}", denied.describe());
    assert!(denied.stderr.contains("takes root") && denied.stdout.is_empty(), "{}", denied.describe());
    let permitted = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let capability = ["--inh-caps", "+sys_ptrace", "--ambient-caps", "+sys_ptrace"];
    let run = |words: &[&str]| {
        let command = permitted.iter().chain(&capability).map(OsStr::new).chain([copy.as_os_str()]);
        Job::new(command.chain(words.iter().map(OsStr::new))).under(Engine::Nothing)
    };
    // With it only root can compare with the kernel.
    let denied = run(&words);
    assert_eq!(denied.code, Some(125), "{}", denied.describe());
    assert!(denied.stderr.contains("takes root") && denied.stdout.is_empty(), "{}", denied.describe());
    let outcome = run(&[&small[..], &["--phases", "fill"]].concat());
    assert_eq!(outcome.code, Some(0), "{}", outcome.describe());
    assert!(outcome.text().contains("unlimited"), "{}", outcome.describe());
}

/// Without any permission programs run where there is a gate for their calls. Without the gate that
/// is reported with the command that mends it.
#[test]
fn no_permission_for_userfaultfd() {
    // SAFETY: no memory effects.
    if unsafe { libc::geteuid() } != 0 {
        skip!("only root can become a user without permission");
    }
    let allowed = fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").unwrap_or_default();
    let open = fs::metadata("/dev/userfaultfd").is_ok_and(|data| data.permissions().mode() & 0o006 == 0o006);
    if allowed.trim() == "1" || open {
        skip!("everybody may use userfaultfd here");
    }
    let copy = ForEverybody::new("plain");
    let copy = copy.path();
    if cfg!(target_arch = "x86_64") {
        let outcome = as_nobody(copy, &["run", "--memory", "64M", "--stats", "--", "echo", "started"]);
        assert_eq!(
            (outcome.code, outcome.text()),
            (Some(0), "started\n".to_owned()),
            "{}",
            outcome.describe()
        );
        assert!(outcome.stderr.contains("holds what calls use"), "{}", outcome.describe());
        let doctor = as_nobody(copy, &["doctor"]);
        assert_eq!(doctor.code, Some(0), "{}", doctor.describe());
        assert!(doctor.text().contains("takes the way gated-calls"), "{}", doctor.describe());
    }
    let outcome = as_nobody(copy, &["run", "--gate", "never", "--memory", "64M", "--", "echo", "started"]);
    assert_eq!(outcome.code, Some(125), "{}", outcome.describe());
    assert!(outcome.stderr.contains("userfaultfd"), "{}", outcome.describe());
    assert!(outcome.stdout.is_empty(), "it was started: {}", outcome.describe());
    let way_out = ["setfacl", "setpriv", "docker run", "podman run", "securityContext"]
        .iter()
        .any(|way| outcome.stderr.contains(way));
    assert!(way_out, "no way out is named: {}", outcome.stderr);
    assert!(outcome.stderr.contains("SYS_PTRACE"), "{}", outcome.describe());
}

/// A capability that the command has by its file, and its programs would not, is no permission.
#[test]
fn file_capabilities_of_the_command_are_no_permission() {
    // SAFETY: no memory effects.
    if unsafe { libc::geteuid() } != 0 {
        skip!("only root can give a file capabilities");
    }
    let copy = ForEverybody::new("owned");
    let copy = copy.path();
    let given = Command::new("setcap").arg("cap_sys_ptrace+ep").arg(copy).status();
    if !given.is_ok_and(|status| status.success()) {
        skip!("setcap is not there, or the file system has no capabilities");
    }
    let outcome = as_nobody(copy, &["run", "--memory", "64M", "--", "echo", "started"]);
    assert_eq!(outcome.code, Some(125), "{}", outcome.describe());
    assert!(outcome.stdout.is_empty(), "it was started: {}", outcome.describe());
    assert!(outcome.stderr.contains("setcap -r"), "{}", outcome.describe());
    let doctor = as_nobody(copy, &["doctor"]);
    assert_eq!(doctor.code, Some(1), "{}", doctor.describe());
}

#[test]
fn the_doctor_is_content_here() {
    // SAFETY: no memory effects.
    if unsafe { libc::geteuid() } != 0 {
        skip!("only root is known to be allowed");
    }
    let output = run_folioswap(&["doctor", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert!(json.is_object(), "{text}");
    let output = run_folioswap(&["doctor"]);
    assert!(output.status.success() && !output.stdout.is_empty());
}
