use super::*;
use rustix::{
    io::{pread, read},
    process::{Pid, PidfdFlags, pidfd_open},
};
use std::process::{Child, Command};

fn sleeper() -> (Child, OwnedFd) {
    let child = Command::new("sleep").arg("60").spawn().expect("sleep");
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).expect("a pidfd");
    (child, process)
}

#[test]
fn the_files_are_those_of_the_process_in_order() {
    let (mut child, process) = sleeper();
    let files = open(child.id(), &process).expect("opened");
    let mut text = [0; 4096];
    let mut start = |file: ProcFile| {
        let length = read(&files[file as usize], &mut text[..]).expect("read");
        String::from_utf8_lossy(&text[..length]).into_owned()
    };
    assert_eq!(files.len(), ProcFile::ALL.len());
    assert!(start(ProcFile::Stat).starts_with(&format!("{} (", child.id())));
    assert!(start(ProcFile::Status).contains(&format!("\nPid:\t{}\n", child.id())));
    assert!(start(ProcFile::SmapsRollup).contains("Pss_Anon:"));
    assert_eq!(start(ProcFile::Statm).split_whitespace().count(), 7);
    let mapping = start(ProcFile::Maps).lines().next().expect("a mapping").to_owned();
    assert!(start(ProcFile::Smaps).starts_with(&mapping));
    child.kill().expect("killed");
    child.wait().expect("waited");
}

#[test]
fn a_pagemap_shows_no_physical_addresses() {
    let (mut child, process) = sleeper();
    let before = capabilities(None).expect("capabilities");
    let files = open(child.id(), &process).expect("opened");
    assert_eq!(capabilities(None).expect("capabilities"), before, "the thread has its rights back");
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", child.id())).expect("maps");
    let stack = maps.lines().find(|line| line.ends_with("[stack]")).expect("a stack");
    let end = stack.split(['-', ' ']).nth(1).expect("its end");
    let last_page = u64::from_str_radix(end, 16).expect("a number") / 4096 - 1;
    let mut word = [0; 8];
    pread(&files[ProcFile::Pagemap as usize], &mut word, last_page * 8).expect("read");
    let word = u64::from_ne_bytes(word);
    assert_ne!(word >> 63, 0, "the page is present");
    assert_eq!(word & ((1 << 55) - 1), 0, "its frame");
    child.kill().expect("killed");
    child.wait().expect("waited");
}

#[test]
fn a_process_that_has_ended_has_none() {
    let (mut child, process) = sleeper();
    child.kill().expect("killed");
    child.wait().expect("waited");
    assert!(open(child.id(), &process).is_err());
}
