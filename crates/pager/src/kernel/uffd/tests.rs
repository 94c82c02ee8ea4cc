use super::*;
use crate::test_memory::userfault;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};

const OTHER: &str = "FOLIOSWAP_TEST_OTHER_PROCESS";

#[test]
fn a_userfault_of_another_process_is_known_as_such() {
    let Some(own) = userfault() else { return };
    if std::env::var_os(OTHER).is_some() {
        std::println!("\nuserfault {}", own.0);
        let _ = std::io::stdin().read(&mut [0]);
        return;
    }
    let name = std::thread::current().name().expect("a test has a name").to_owned();
    let mut other = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", &name])
        .env(OTHER, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(other.stdout.take().unwrap()).lines().map_while(Result::ok);
    let number = lines.find_map(|line| line.strip_prefix("userfault ")?.parse().ok());
    let process = rustix::process::pidfd_open(
        rustix::process::Pid::from_child(&other),
        rustix::process::PidfdFlags::empty(),
    );
    let flags = rustix::process::PidfdGetfdFlags::empty();
    let pagemap = std::fs::File::open("/proc/self/pagemap").unwrap();
    let taken = rustix::process::pidfd_getfd(process.unwrap(), number.expect("its number"), flags).unwrap();
    assert_eq!(Userfault(taken.as_raw_fd()).is_own(pagemap.as_raw_fd()), Ok(false));
    assert_eq!(own.is_own(pagemap.as_raw_fd()), Ok(true));
    drop(other.stdin.take());
    lines.for_each(drop);
    assert!(other.wait().unwrap().success());
}
