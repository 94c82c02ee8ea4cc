//! The calling test once more, in another process, as a user without privilege.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

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
    let name = std::thread::current().name().expect("a test has a name").to_owned();
    // Another user may not read the directory of the test program.
    let copy = std::path::PathBuf::from(format!("/var/tmp/folioswap-test-{}-{word}", std::process::id()));
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let mut child = Command::new(&copy)
        .args(["--exact", "--nocapture", &name])
        .env(CHILD, word)
        .current_dir("/")
        .uid(65534)
        .gid(65534)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
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
