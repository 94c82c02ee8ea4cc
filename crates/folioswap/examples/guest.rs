//! The memory of a virtual machine as a region: 256 MiB for a guest, of which the host has 48. Two
//! "virtual processors" (threads) work on it by guest addresses. The host reads from a disk into it
//! with pread(2), wherever the guest wants the data, and discards the pages that the guest's
//! balloon has freed. (A monitor passes the same address and length to KVM_SET_USER_MEMORY_REGION.)
//!
//! `cargo run --release -p folioswap --example guest`

use folioswap::{Error, Region, Swap};
use std::fs::File;
use std::os::unix::fs::FileExt;

const GUEST_BYTES: usize = 256 << 20;
const PAGE: usize = 4096;

/// Guest memory, with addresses from 0 on. Processors use it concurrently, by words.
struct Guest {
    region: Region,
}

impl Guest {
    /// Returns the word at a guest address.
    fn word(&self, address: usize) -> &std::sync::atomic::AtomicU64 {
        assert!(address.is_multiple_of(8) && address < self.region.len());
        // SAFETY: the word is aligned and within the region, which `self` owns; all uses are
        // atomic.
        unsafe { std::sync::atomic::AtomicU64::from_ptr(self.region.base().as_ptr().add(address).cast()) }
    }

    /// Acts as a virtual disk: reads from a file to a guest address, whether or not the page is
    /// resident.
    fn read_disk(&self, disk: &File, from: u64, to: usize, bytes: usize) -> std::io::Result<()> {
        assert!(to + bytes <= self.region.len());
        // SAFETY: within the region; the guest does not touch the range that it has given to the
        // disk.
        let target = unsafe { std::slice::from_raw_parts_mut(self.region.base().as_ptr().add(to), bytes) };
        disk.read_exact_at(target, from)
    }
}

/// A processor's work on its half of the memory: writes a word to each page, then checks all.
fn processor(guest: &Guest, number: usize) {
    use std::sync::atomic::Ordering::Relaxed;
    let half = GUEST_BYTES / 2;
    let pages = || (number * half..(number + 1) * half).step_by(PAGE);
    pages().for_each(|address| guest.word(address + 8 * number).store(address as u64 + 7, Relaxed));
    pages()
        .for_each(|address| assert_eq!(guest.word(address + 8 * number).load(Relaxed), address as u64 + 7));
}

fn main() -> Result<(), Error> {
    let swap = Swap::builder().limit("48M").build()?;
    let mut guest = Guest { region: swap.region(GUEST_BYTES)? };
    std::thread::scope(|scope| {
        let guest = &guest;
        (0..2).for_each(|number| drop(scope.spawn(move || processor(guest, number))));
    });
    println!("both processors are done: {}", swap.statistics());

    if swap.serves_system_calls() {
        let disk = File::open(std::env::current_exe().expect("our name")).expect("our own program as a disk");
        guest.read_disk(&disk, 0, 100 * PAGE, 16 * PAGE).expect("16 pages of it");
        assert_eq!(&guest.region.as_slice()[100 * PAGE + 1..][..3], b"ELF");
    }
    // The guest's balloon has freed these pages, so the host discards them.
    guest.region.dont_need(GUEST_BYTES / 2..)?;
    // The guest sleeps, so all of its memory leaves.
    guest.region.page_out(..)?;
    println!("asleep: {} KiB resident", guest.region.resident_bytes(..)? >> 10);
    Ok(())
}
