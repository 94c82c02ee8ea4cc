use super::*;
use crate::test_memory;
use rustix::fs::{CWD, Mode, OFlags};
use std::fs;

/// In a thread of its own, which stays confined.
#[test]
fn only_files_beneath_the_directories_are_opened_and_only_for_reading() {
    if look() == Landlock::Missing {
        test_memory::skip("the kernel has no Landlock");
        return;
    }
    std::thread::spawn(|| {
        let proc = rustix::fs::open(c"/proc/self", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let kept = fs::File::open("/etc/passwd").unwrap();
        rustix::thread::set_no_new_privs(true).unwrap();
        read_only_beneath(&[proc.as_fd()]).unwrap();
        assert!(fs::read_to_string("/proc/self/status").is_ok());
        assert!(fs::read_to_string("/proc/self/task/../maps").is_ok());
        let write = rustix::fs::openat(CWD, c"/proc/self/comm", OFlags::WRONLY, Mode::empty());
        assert_eq!(write.err(), Some(Errno::ACCESS));
        for path in
            ["/etc/passwd", "/proc/version", "/proc/1/status", "/proc/self/root/etc/passwd", "/proc/self/exe"]
        {
            let opened = rustix::fs::openat(CWD, path, OFlags::RDONLY, Mode::empty());
            assert_eq!(opened.err(), Some(Errno::ACCESS), "{path}");
        }
        let mut byte = [0];
        assert_eq!(rustix::io::pread(&kept, &mut byte, 0), Ok(1), "what is open stays open");
    })
    .join()
    .unwrap();
}
