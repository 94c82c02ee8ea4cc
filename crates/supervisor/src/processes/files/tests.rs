use super::*;
use rustix::{
    io::read,
    process::{Pid, PidfdFlags, pidfd_open},
};
use std::{
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// A child that has begun to run its program, and ends with the test.
struct Sleeper(Child);

impl Sleeper {
    fn begin(program: &str) -> (Self, OwnedFd) {
        let child = Command::new(program).arg("60").stdout(Stdio::null()).spawn().expect("sleep");
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).expect("a pidfd");
        let sleeper = Sleeper(child);
        // The kernel fills it in at the end of an exec, after the file's own marks have gone.
        let auxv = format!("/proc/{}/auxv", sleeper.0.id());
        let is_there = || std::fs::read(&auxv).is_ok_and(|bytes| bytes.iter().any(|&byte| byte != 0));
        let begun = Instant::now();
        while !is_there() {
            assert!(begun.elapsed() < Duration::from_secs(5), "the program begins");
            std::thread::yield_now();
        }
        (sleeper, process)
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_files_are_those_of_the_process_in_order() {
    let (child, process) = Sleeper::begin("sleep");
    let files = open(child.0.id(), child.0.id(), &process, ProcFile::ALL.into_iter()).expect("opened");
    let mut text = [0; 4096];
    let mut start = |file: ProcFile| {
        let length = read(&files[file as usize], &mut text[..]).expect("read");
        String::from_utf8_lossy(&text[..length]).into_owned()
    };
    assert_eq!(files.len(), ProcFile::ALL.len());
    assert!(start(ProcFile::Stat).starts_with(&format!("{} (", child.0.id())));
    assert!(start(ProcFile::Status).contains(&format!("\nPid:\t{}\n", child.0.id())));
    assert!(start(ProcFile::SmapsRollup).contains("Pss_Anon:"));
    assert_eq!(start(ProcFile::Statm).split_whitespace().count(), 7);
    let mapping = start(ProcFile::Maps).lines().next().expect("a mapping").to_owned();
    assert!(start(ProcFile::Smaps).starts_with(&mapping));
}

#[test]
fn a_pagemap_shows_no_physical_addresses() {
    let (child, process) = Sleeper::begin("sleep");
    let before = capabilities(None).expect("capabilities");
    let files = open(child.0.id(), child.0.id(), &process, ProcFile::ALL.into_iter()).expect("opened");
    assert_eq!(capabilities(None).expect("capabilities"), before, "the thread has its rights back");
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", child.0.id())).expect("maps");
    let stack = maps.lines().find(|line| line.ends_with("[stack]")).expect("a stack");
    let end = stack.split(['-', ' ']).nth(1).expect("its end");
    let last_page = u64::from_str_radix(end, 16).expect("a number") / 4096 - 1;
    let mut word = [0; 8];
    pread(&files[ProcFile::Pagemap as usize], &mut word, last_page * 8).expect("read");
    let word = u64::from_ne_bytes(word);
    assert_ne!(word >> 63, 0, "the page is present");
    assert_eq!(word & ((1 << 55) - 1), 0, "its frame");
}

#[test]
fn a_process_that_has_ended_has_none() {
    let (child, process) = Sleeper::begin("sleep");
    let pid = child.0.id();
    drop(child);
    assert!(open(pid, pid, &process, ProcFile::ALL.into_iter()).is_err());
}

#[test]
fn only_what_is_wanted_is_opened() {
    let (child, process) = Sleeper::begin("sleep");
    let wanted = ProcFile::of_mask(ProcFile::Status.bit() | ProcFile::Pagemap.bit() | 1 << 60);
    let files = open(child.0.id(), child.0.id(), &process, wanted).expect("opened");
    assert_eq!(files.len(), 2);
    let mut text = [0; 64];
    read(&files[1], &mut text[..]).expect("read");
    assert!(text.starts_with(b"Name:\tsleep\n"), "the order is that of the list");
}

/// Somebody may ask in the name of a process that has become root's by its exec.
#[test]
fn a_set_user_id_program_has_none() {
    let directory = std::env::temp_dir().join(format!("folioswap-files-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let program = directory.join("sleep");
    // Another process copies it: a child that a test beside this one forks just then would have our
    // descriptor, and the program could not be executed.
    let copied = Command::new("cp").arg("/bin/sleep").arg(&program).status().expect("cp");
    assert!(copied.success());
    std::os::unix::fs::chown(&program, Some(1), None).expect("root's test");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o4755);
    std::fs::set_permissions(&program, mode).expect("set");
    let (child, process) = Sleeper::begin(program.to_str().expect("text"));
    let opened = open(child.0.id(), child.0.id(), &process, ProcFile::ALL.into_iter());
    std::fs::remove_dir_all(&directory).expect("removed");
    assert_eq!(opened.map(|files| files.len()), Err(Errno::PERM));
}
