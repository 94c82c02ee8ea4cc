//! Making and opening prepared swap files and block devices: the refusals, and that nothing is
//! written then.
#![cfg(not(miri))]

mod common;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use common::loop_device::{LoopDevice, TestFile};
use folioswap_devices::header::{DATA_START, HeaderError};
use folioswap_devices::prepared::{Overwrite, PreparedError, make, open};
use folioswap_devices::{Checksum, Medium};

const SIZE: u64 = 8 << 20;

fn checksum_of(path: &Path) -> u32 {
    Checksum::of(&fs::read(path).unwrap()).raw()
}

/// Both functions refuse the target, each with this text in its message, and no byte changes.
fn refused(path: &Path, making: &str, opening: &str) {
    let before = fs::metadata(path).is_ok_and(|found| found.is_file()).then(|| checksum_of(path));
    let made = make(path, Overwrite::Nothing).unwrap_err().to_string();
    assert!(made.contains(making), "make {}: {made}", path.display());
    let opened = open(path, None).unwrap_err().to_string();
    assert!(opened.contains(opening), "open {}: {opened}", path.display());
    if let Some(before) = before {
        assert_eq!(checksum_of(path), before, "{} was written to", path.display());
    }
}

#[test]
fn a_blank_file_is_prepared_and_opened() {
    let file = TestFile::new(SIZE + 4096);
    assert!(matches!(open(&file.0, None), Err(PreparedError::Header { error: HeaderError::Foreign, .. })));
    let header = make(&file.0, Overwrite::Nothing).unwrap();
    assert_eq!(header.size, SIZE, "whole clusters");
    let prepared = open(&file.0, Some(header.uuid)).unwrap();
    assert_eq!((prepared.header, prepared.medium), (header, Medium::File));
    assert!(prepared.discard_bytes.is_some());
    drop(prepared);
    let other = make(&TestFile::new(SIZE).0, Overwrite::Nothing).unwrap().uuid;
    assert!(
        matches!(open(&file.0, Some(other)), Err(PreparedError::WrongUuid { found }) if found == header.uuid)
    );
}

#[test]
fn what_is_there_stays_unless_it_is_forced() {
    let file = TestFile::new(SIZE);
    let header = make(&file.0, Overwrite::Nothing).unwrap();
    refused_again(&file, header.uuid);
    let anew = make(&file.0, Overwrite::Anything).unwrap();
    assert_ne!(anew.uuid, header.uuid);
    for (at, text, name) in [
        (0, &b"my only copy"[..], ""),
        (100_000, b"x", ""),
        (SIZE - 1, b"x", ""),
        (4096 - 10, b"SWAPSPACE2", "swap space of the kernel"),
        (0x438, b"\x53\xef", "ext4"),
    ] {
        let file = TestFile::new(SIZE);
        let opened = fs::File::options().write(true).open(&file.0).unwrap();
        opened.write_all_at(text, at).unwrap();
        refused(&file.0, "not empty", "no header of folioswap");
        let message = make(&file.0, Overwrite::Nothing).unwrap_err().to_string();
        assert!(message.contains(name) && message.contains("--force"), "{message}");
        make(&file.0, Overwrite::Anything).unwrap();
        open(&file.0, None).unwrap();
        let start = &fs::read(&file.0).unwrap()[4096..DATA_START as usize];
        assert!(start.iter().all(|&byte| byte == 0), "no mark of a former owner is left");
    }
}

fn refused_again(file: &TestFile, uuid: uuid::Uuid) {
    let before = checksum_of(&file.0);
    let error = make(&file.0, Overwrite::Nothing).unwrap_err();
    assert!(error.to_string().contains(&uuid.to_string()), "{error}");
    assert_eq!(checksum_of(&file.0), before);
}

#[test]
fn what_cannot_be_a_swap_file_is_refused() {
    refused(&TestFile::new(0).0, "size is 0", "size is 0");
    refused(&TestFile::new(4095).0, "too few", "too few");
    refused(Path::new("/dev/null"), "neither a regular file", "neither a regular file");
    refused(Path::new("/var/tmp"), "neither a regular file", "neither a regular file");
    refused(Path::new("/nowhere/at/all"), "make it first", "make it first");
    let memory = TestFile::at(Path::new("/dev/shm"), SIZE);
    refused(&memory.0, "in memory", "in memory");
}

#[test]
fn one_file_is_open_once() {
    let file = TestFile::new(SIZE);
    make(&file.0, Overwrite::Nothing).unwrap();
    let link = file.0.with_extension("link");
    fs::hard_link(&file.0, &link).unwrap();
    let held = open(&file.0, None).unwrap();
    let (again, made) = (open(&link, None), make(&file.0, Overwrite::Anything));
    fs::remove_file(&link).unwrap();
    assert!(matches!(again, Err(PreparedError::Locked)), "{again:?}");
    assert!(matches!(made, Err(PreparedError::Locked)), "{made:?}");
    // A duplicate of the descriptor holds the target, also after the first one is closed.
    let handed_on = held.fd.try_clone().unwrap();
    drop(held);
    assert!(matches!(open(&file.0, None), Err(PreparedError::Locked)));
    drop(handed_on);
    open(&file.0, None).unwrap();
}

#[test]
fn a_header_that_is_damaged_or_does_not_fit_is_refused() {
    let file = TestFile::new(SIZE);
    make(&file.0, Overwrite::Nothing).unwrap();
    file.truncate(SIZE - 4096);
    assert!(matches!(open(&file.0, None), Err(PreparedError::Shrunk { .. })));
    file.truncate(2 * SIZE);
    assert_eq!(open(&file.0, None).unwrap().header.size, SIZE, "no more than was prepared");
    fs::File::options().write(true).open(&file.0).unwrap().write_all_at(b"x", 17).unwrap();
    refused(&file.0, "not empty", "damaged");
}

#[test]
fn block_devices_are_held_alone_and_not_taken_from_others() {
    let Some(block) = LoopDevice::new(32 << 20) else { return };
    let used = make(&block.backing.0, Overwrite::Anything).unwrap_err().to_string();
    assert!(used.contains(&format!("behind {}", block.path.display())), "{used}");
    let made = Command::new("mkfs.ext4").arg("-q").arg(&block.path).status();
    if made.is_ok_and(|status| status.success()) {
        let before = checksum_of(&block.backing.0);
        let error = make(&block.path, Overwrite::Nothing).unwrap_err().to_string();
        assert!(error.contains("ext4"), "{error}");
        assert!(open(&block.path, None).unwrap_err().to_string().contains("ext4"));
        assert_eq!(checksum_of(&block.backing.0), before);
        let point = block.backing.0.with_extension("mounted");
        fs::create_dir(&point).unwrap();
        assert!(Command::new("mount").arg(&block.path).arg(&point).status().unwrap().success());
        let errors = [make(&block.path, Overwrite::Anything).map(drop), open(&block.path, None).map(drop)];
        Command::new("umount").arg(&point).status().unwrap();
        fs::remove_dir(&point).unwrap();
        for error in errors {
            let error = error.unwrap_err().to_string();
            assert!(error.contains(&format!("mounted on {}", point.display())), "{error}");
        }
    }
    let header = make(&block.path, Overwrite::Anything).unwrap();
    let held = open(&block.path, Some(header.uuid)).unwrap();
    assert_eq!(held.medium, Medium::Block);
    assert!(matches!(open(&block.path, None), Err(PreparedError::InUse { .. })));
    drop(held);
    open(&block.path, None).unwrap();
}
