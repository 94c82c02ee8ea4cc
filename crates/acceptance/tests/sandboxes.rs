//! Programs that confine themselves or others, and programs that look into others, do under a limit
//! what they do alone. A program that sees other namespaces may run unmanaged.

use folioswap_acceptance::job::{self, Engine, Job, Outcome};
use folioswap_acceptance::programs::{c_program, folioswap, output_directory, which};
use folioswap_acceptance::{MIB, need, skip};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

/// Needs 24 MiB and prints a sum.
const PYTHON: &str = "
a = bytearray(24 << 20)
for i in range(0, len(a), 4096): a[i] = i // 4096 & 255
print('sum', sum(a[i] for i in range(0, len(a), 4096)))
";
const PYTHON_SUM: &str = "sum 783360\n";

/// A page whose script writes a sum into it.
const PAGE: &str = "<body><script>
const a = []; for (let i = 0; i < 200000; i++) a.push('x' + i * 7);
let s = 0; for (const t of a) s += t.length;
document.body.textContent = 'sum ' + s;
</script></body>";
const PAGE_SUM: &str = "sum 1441267";

/// Runs a shell script, in a directory of its own with a file `page.html`.
fn script(text: &str) -> Job {
    let whole = format!("cat > page.html <<'END'\n{PAGE}\nEND\nexport HOME=\"$PWD\" TMPDIR=\"$PWD\"\n{text}");
    Job::new(["sh", "-ec", &whole]).timeout(Duration::from_secs(240))
}

fn check(outcome: &Outcome, prints: &str) {
    assert_eq!(outcome.code, Some(0), "{}", outcome.describe());
    assert!(outcome.text().contains(prints), "{}", outcome.describe());
}

#[test]
fn bubblewrap() {
    need!("bwrap", "python3");
    let words = [
        "bwrap",
        "--ro-bind",
        "/",
        "/",
        "--dev",
        "/dev",
        "--proc",
        "/proc",
        "--unshare-all",
        "python3",
        "-c",
        PYTHON,
    ];
    check(&Job::new(words).within(80 * MIB), PYTHON_SUM);
}

#[test]
fn a_user_namespace() {
    need!("unshare", "python3");
    check(&Job::new(["unshare", "-U", "-r", "python3", "-c", PYTHON]).within(80 * MIB), PYTHON_SUM);
}

/// Its zygote demands that it has one thread.
#[test]
fn chromium_with_its_zygote() {
    need!("chromium");
    let job = script(
        "exec chromium --headless --no-sandbox --disable-gpu --user-data-dir=\"$PWD/p\" --dump-dom \"file://$PWD/page.html\"",
    );
    let outcome = job.option("--stats=all").under(job::engine(96 * MIB));
    check(&outcome, PAGE_SUM);
}

/// An ordinary user's, who has the one right that folioswap needs: namespaces and filters.
#[test]
fn chromium_in_its_own_sandbox() {
    need!("chromium", "setpriv");
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    let right = "--inh-caps +sys_ptrace --ambient-caps +sys_ptrace";
    let job = script(&format!(
        "mkdir p && chmod 755 . && chown 65534:65534 p && export HOME=\"$PWD/p\" TMPDIR=\"$PWD/p\"
         exec setpriv --reuid 65534 --regid 65534 --clear-groups {right} {} run -m 96M -- \
         chromium --headless --disable-gpu --user-data-dir=\"$PWD/p/d\" --dump-dom \"file://$PWD/page.html\"",
        folioswap().display()
    ));
    check(&job.under(Engine::Nothing), PAGE_SUM);
}

#[test]
fn firefox_with_its_sandboxes() {
    need!("firefox-esr");
    let job = script(
        "mkdir p && firefox-esr --headless --profile \"$PWD/p\" --screenshot \"$PWD/o.png\" \"file://$PWD/page.html\"
         head -c 4 o.png | tail -c 3",
    );
    check(&job.under(job::engine(320 * MIB)), "PNG");
}

/// What a command says of a process that is over its limit, and goes on afterwards.
fn look_into(tool: impl Fn(&str) -> Command) -> Output {
    let program = c_program("ending", "", &[]);
    let mut running =
        Job::new([program.as_os_str(), "count".as_ref(), "96".as_ref()]).start(job::engine(40 * MIB));
    running.wait_for_output("ready");
    let looked = running.processes().into_iter().find(|pid| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "ending\n")
    });
    let looked = looked.unwrap_or_else(|| panic!("no process in {:?}", running.processes()));
    let output = tool(&looked.to_string()).output().expect("the tool can be run");
    running.signal(libc::SIGTERM);
    let outcome = running.finish();
    assert_eq!(outcome.text(), "ready\n1 signals\n", "{}", outcome.describe());
    output
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The length and the start of a mapping that is no file's, as a line of `/proc/PID/maps` has it.
fn anonymous(line: &str) -> Option<(usize, usize)> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let [start, end] = [usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?];
    (words.next() == Some("rw-p") && words.count() == 3).then_some((end - start, start))
}

/// It stops all threads, calls a function there, and asks for memory that is away.
#[test]
fn gdb() {
    need!("gdb");
    let output = look_into(|pid| {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let (_, start) = maps.lines().filter_map(anonymous).max().expect("memory");
        let look = format!("x/8xb {start:#x}");
        let mut gdb = Command::new("gdb");
        gdb.args(["-nx", "-batch", "-p", pid, "-ex", &look, "-ex", "print (int)getpid()"]);
        gdb.args(["-ex", "thread apply all backtrace 1"]);
        gdb
    });
    let said = text(&output);
    assert!(output.status.success() && said.contains("#0 ") && said.contains("$1 = "), "{said}");
    // The kernel does not wait for a userfault there: such a read ends with EIO, never with zeroes.
    assert!(said.contains("Cannot access memory") || said.contains(":\t0x"), "{said}");
    assert!(!said.contains(&"\t0x00".repeat(8)), "{said}");
}

/// py-spy, beside Cargo's output or in `$PATH`.
fn py_spy() -> Option<PathBuf> {
    let own = output_directory().parent()?.join("tools/bin/py-spy");
    which(own.to_str()?).or_else(|| which("py-spy"))
}

#[test]
fn py_spy_dump() {
    need!("python3");
    let Some(py_spy) = py_spy() else { skip!("py-spy is not installed") };
    let program = "
import sys, time
def waits_for_somebody_to_look():
    a = bytearray(96 << 20)
    for i in range(0, len(a), 4096): a[i] = i // 4096 & 255
    print('ready', flush=True)
    sys.stdin.readline()
    while True:
        try: open('seen').close(); break
        except OSError: time.sleep(0.01)
    print('sum', sum(a[i] for i in range(0, len(a), 4096)))
waits_for_somebody_to_look()
";
    let mut running = Job::new(["python3", "-c", program]).start(job::engine(48 * MIB));
    running.wait_for_output("ready");
    let dumps = |pid: &i32| Command::new(&py_spy).args(["dump", "--pid", &pid.to_string()]).output().ok();
    let dumped = running.processes().iter().filter_map(dumps).find(|output| output.status.success());
    std::fs::write(running.directory().join("seen"), "").expect("a file");
    let outcome = running.finish();
    check(&outcome, "sum 3133440");
    let said = text(&dumped.unwrap_or_else(|| panic!("nothing dumped: {}", outcome.describe())));
    assert!(said.contains("waits_for_somebody_to_look"), "{said}");
}
