//! Test suites of others, CPython's and Go's, as a user without any permission: each of their tests
//! ends as it does natively.
//!
//! What starts few programs runs while everything that may leave is taken out all the time; an
//! interpreter takes seconds to start then, so what starts many runs within a limit.
//! `FOLIOSWAP_LONG=1` is the long form: more modules and packages.
#![cfg(target_arch = "x86_64")]

use folioswap_acceptance::job::{self, Job, NOBODY, Outcome};
use folioswap_acceptance::programs::go_tests;
use folioswap_acceptance::{MIB, need, only_root, skip};
use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

/// The interpreter whose tests Debian has a package of.
const PYTHON: &str = "/usr/bin/python3";

/// Runs modules of CPython's tests, and prints a line for each test to a descriptor that the tests
/// do not know, since they print too. It is `result NAME OUTCOME...`.
const RUNNER: &str = r#"
import fcntl, os, sys
os.environ['HOME'] = os.environ['TMPDIR'] = os.getcwd()
results = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 200)
os.dup2(2, 1)
import unittest
class Lines(unittest.TestResult):
    def startTest(self, test):
        super().startTest(test)
        self.outcomes = []
    def stopTest(self, test):
        super().stopTest(test)
        line = ' '.join(['result', test.id(), *self.outcomes])
        os.write(results, (line + '\n').encode())
    def addError(self, test, error):
        super().addError(test, error)
        self.bad('error', test, error)
    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.bad('failure', test, error)
    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error: self.bad('subtest', subtest, error)
    def bad(self, word, test, error):
        self.outcomes.append(word)
        print(test, self._exc_info_to_string(error, test), file=sys.stderr, flush=True)
    def addSuccess(self, test): self.outcomes.append('ok')
    def addSkip(self, test, reason): getattr(self, 'outcomes', []).append('skip')
for name in sys.argv[1:]:
    unittest.defaultTestLoader.loadTestsFromName('test.test_' + name).run(Lines())
"#;

/// Modules of the long form, with the number of tests of each that must pass.
const MORE_MODULES: [(&str, usize); 3] = [("socket", 500), ("subprocess", 250), ("threading", 150)];

/// How memory is kept short.
#[derive(Clone, Copy)]
enum Pressure {
    /// All that may leave is taken out all the time.
    EverythingLeaves,
    /// This many MiB are the limit.
    Within(u64),
}

/// A suite as a user who may do nothing but run programs.
fn nobody(command: &[&str]) -> Job {
    Job::new(command).without_sys_ptrace().user(NOBODY).timeout(Duration::from_secs(900))
}

/// The lines of results, in order.
fn results(outcome: &Outcome) -> BTreeSet<String> {
    let lines = outcome.text();
    lines.lines().filter(|line| line.starts_with("result ")).map(str::to_owned).collect()
}

/// Runs a suite natively and managed, and compares what `results` finds. It must find `least`
/// tests that passed: a suite whose tests did not run shows nothing.
fn compare(
    name: &str,
    job: &Job,
    pressure: Pressure,
    least: usize,
    results: fn(&Outcome) -> BTreeSet<String>,
) {
    let native = job.unlimited();
    assert_eq!(native.code, Some(0), "{}", native.describe());
    let gated = job.clone().unprivileged();
    let managed = match pressure {
        Pressure::EverythingLeaves => gated.option("--evict-all").within(1024 * MIB),
        Pressure::Within(mebibytes) => gated.within(mebibytes * MIB),
    };
    job::report(name, &native);
    job::report(name, &managed);
    let (before, after) = (results(&native), results(&managed));
    let differ: Vec<_> = before.symmetric_difference(&after).collect();
    assert!(differ.is_empty(), "{name}: {differ:#?} in one of both: {}", managed.describe());
    let passed = after.iter().filter(|line| line.ends_with(" ok")).count();
    println!("{name}: {} tests, {passed} of them pass", after.len());
    assert!(passed >= least, "{name}: only {passed} tests passed: {}", managed.describe());
    job::check_way(&managed, "gated-calls");
    job::check_swapped(&managed, 4 * MIB);
}

fn python(modules: &[&str], pressure: Pressure, least: usize) {
    only_root!("become another user");
    need!(PYTHON);
    let is_there = Command::new(PYTHON).args(["-c", "import test.test_os"]).output().expect("Python runs");
    if !is_there.status.success() {
        skip!("CPython's tests are not installed (libpython3.N-testsuite)");
    }
    let command = [&[PYTHON, "-c", RUNNER], modules].concat();
    compare(&format!("CPython's {}", modules.join(" ")), &nobody(&command), pressure, least, results);
}

/// The results of Go's tests and of their parts.
fn results_of_go(outcome: &Outcome) -> BTreeSet<String> {
    let result = |line: &str| {
        let mut words = line.trim_start().strip_prefix("--- ")?.split_whitespace();
        let (word, name) = (words.next()?, words.next()?);
        Some(format!("{name} {}", if word == "PASS:" { "ok" } else { word }))
    };
    outcome.text().lines().filter_map(result).collect()
}

/// Runs the tests of a package of Go's library, but for those whose names contain one of `without`.
fn go(package: &str, without: &[&str], pressure: Pressure, least: usize) {
    only_root!("become another user");
    need!("go");
    let (program, directory) = go_tests(package);
    let program = program.to_str().expect("text");
    let list = Command::new(program).args(["-test.list", "^Test"]).current_dir(&directory).output();
    let list = String::from_utf8(list.expect("it runs").stdout).expect("text");
    let names: Vec<_> = list.lines().filter(|name| !without.iter().any(|part| name.contains(part))).collect();
    // Its files are read where they are, and written to the directory of the run.
    let script = "HOME=$PWD TMPDIR=$PWD && export HOME TMPDIR && cd \"$1\" && shift && exec \"$@\"";
    let pattern = format!("^({})$", names.join("|"));
    let directory = directory.to_str().expect("text");
    let command =
        ["sh", "-c", script, "sh", directory, program, "-test.v", "-test.short", "-test.run", &pattern];
    compare(&format!("Go's {package}"), &nobody(&command), pressure, least, results_of_go);
}

/// A program that is begun in a user namespace of its own runs unmanaged.
const NAMESPACES: [&str; 4] = ["Unshare", "NEWUSER", "UserN", "AmbientCaps"];
/// It waits 30 s for the signals of a program that is stopped and started all the time.
const TRACED: [&str; 1] = ["SignalTrace"];
/// Go's compiler takes minutes within such a limit.
const COMPILES: [&str; 1] = ["ExecutableDeleted"];

/// (CPython's `epoll` is left out: it wants an answer within 10 ms.)
#[test]
fn each_test_ends_as_it_does_natively() {
    python(&["fileio", "mmap", "fcntl"], Pressure::EverythingLeaves, 120);
    if job::amount(0, 1) == 1 {
        python(&["pty", "select", "memoryio"], Pressure::EverythingLeaves, 150);
        python(&["posix", "os"], Pressure::Within(20), 330);
        for (module, least) in MORE_MODULES {
            python(&[module], Pressure::Within(24), least);
        }
        go("internal/poll", &[], Pressure::EverythingLeaves, 8);
        go("syscall", &NAMESPACES, Pressure::EverythingLeaves, 25);
        go("os/signal", &TRACED, Pressure::EverythingLeaves, 15);
        go("os", &COMPILES, Pressure::Within(10), 150);
        go("os/exec", &[], Pressure::Within(12), 25);
    }
}
