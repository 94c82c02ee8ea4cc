use super::*;
use rustix::fs::fstat;
use std::fs::File;

#[test]
fn random_numbers_are_high_and_differ() {
    let directory = || OwnedFd::from(File::open("/").expect("opened"));
    let end = getrlimit(Resource::Nofile).current.map_or(NUMBERS_END, |most| most.min(NUMBERS_END));
    let moved: Vec<OwnedFd> = (0..8).map(|_| at_random_number(directory()).expect("random")).collect();
    let mut numbers: Vec<RawFd> = moved.iter().map(AsRawFd::as_raw_fd).collect();
    assert!(numbers.iter().all(|&number| (end / 2..end).contains(&(number as u64))), "{numbers:?}");
    // Even of the numbers of a process that may have 1024, eight in a row come once in 10^21 times.
    numbers.sort_unstable();
    assert!(numbers.windows(2).any(|pair| pair[1] != pair[0] + 1), "{numbers:?}");
    let of = |fd: &OwnedFd| fstat(fd).map(|stat| (stat.st_dev, stat.st_ino)).expect("open");
    assert!(moved.iter().all(|fd| of(fd) == of(&directory())), "the same file");
    let flags = rustix::io::fcntl_getfd(&moved[0]).expect("open");
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
}
