//! The calling test once more, in another process, as a user without privilege.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

static COPYING: Mutex<()> = Mutex::new(());

const CHILD: &str = "FOLIOSWAP_TEST_CHILD";

/// Returns whether this is the process that plays this part.
pub fn is_child(word: &str) -> bool {
    std::env::var(CHILD).is_ok_and(|found| found == word)
}

/// Runs the calling test in another process, for at most a minute, by a user who may use
/// userfaultfd for faults of user mode only.
pub fn as_nobody(word: &str) {
    if std::env::var_os(CHILD).is_some() {
        return;
    }
    if rustix::process::geteuid().as_raw() != 0 {
        folioswap_test_support::skipping::note("only root can give up its privilege");
        return;
    }
    in_another_process(word, |command| command.uid(65534).gid(65534));
}

/// Runs the calling test in another process, for at most a minute.
#[allow(dead_code, reason = "not every test needs it")]
pub fn as_oneself(word: &str) {
    if std::env::var_os(CHILD).is_none() {
        in_another_process(word, |command| command);
    }
}

fn in_another_process(word: &str, set_up: impl FnOnce(&mut Command) -> &mut Command) {
    let name = std::thread::current().name().expect("a test has a name").to_owned();
    // Another user may not read the directory of the test program.
    let copy = format!("/var/tmp/folioswap-test-{}-{word}-{name}", std::process::id());
    // A program that is started meanwhile would have the copy open for writing, for a moment.
    let copying = COPYING.lock().unwrap_or_else(PoisonError::into_inner);
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let mut command = Command::new(&copy);
    command.args(["--exact", "--nocapture", &name]).env(CHILD, word).current_dir("/");
    let mut child = set_up(&mut command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(copying);
    let until = Instant::now() + Duration::from_secs(60);
    while child.try_wait().unwrap().is_none() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    let output = child.wait_with_output().unwrap();
    std::fs::remove_file(&copy).unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
}
