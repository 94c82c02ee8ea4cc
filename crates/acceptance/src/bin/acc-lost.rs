//! Fills memory, waits, and reads every page through process_vm_readv(2), which fails for a lost
//! page where a touch would raise SIGBUS.
//!
//! `acc-lost MIB GO [KIND]` prints `ready` when all memory is filled, waits for the file GO, and
//! prints `right R lost L wrong W` (pages). Lost pages are no failure of the program; wrong ones
//! are.
//!
//! `acc-lost hot HOT_MIB COLD_MIB` touches a hot set again and again at random while it writes a
//! cold stream once, and prints `ok`.

use folioswap_acceptance::data::{self, Kind, PAGE, Random};
use folioswap_acceptance::memory::Mapping;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

const SEED: u64 = 11;
/// Pages that are to be lost must lie on the device itself, so they do not compress.
const LOST: Kind = Kind::Incompressible;
/// The fast tier of a hot set is compressed RAM.
const HOT: Kind = Kind::Two;

fn filled(pages: usize, kind: Kind) -> Mapping {
    let mut memory = Mapping::new(pages * PAGE);
    for (number, page) in memory.chunks_exact_mut(PAGE).enumerate() {
        data::fill(page, kind, SEED, 0, number as u64);
    }
    memory
}

/// A page of this process as another process would read it, or `None` if it is poisoned.
fn read_page(page: &[u8]) -> Option<[u8; PAGE]> {
    let mut copy = [0; PAGE];
    let local = libc::iovec { iov_base: copy.as_mut_ptr().cast(), iov_len: PAGE };
    let remote = libc::iovec { iov_base: page.as_ptr().cast_mut().cast(), iov_len: PAGE };
    // SAFETY: both describe a page of ours; it writes to the copy alone.
    let read =
        unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
    (read == PAGE as isize).then_some(copy)
}

fn lost(pages: usize, go: &Path, kind: Kind) -> ExitCode {
    let memory = filled(pages, kind);
    println!("ready");
    while !go.exists() {
        std::thread::sleep(Duration::from_millis(20));
    }
    let (mut right, mut lost, mut wrong) = (0, 0, 0);
    for (number, page) in memory.chunks_exact(PAGE).enumerate() {
        match read_page(page) {
            None => lost += 1,
            Some(copy) if data::check(&copy, kind, SEED, 0, number as u64).is_ok() => right += 1,
            Some(_) => wrong += 1,
        }
    }
    println!("right {right} lost {lost} wrong {wrong}");
    if wrong > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn hot(hot_pages: usize, cold_pages: usize) -> ExitCode {
    let hot = filled(hot_pages, HOT);
    let mut cold = Mapping::new(cold_pages * PAGE);
    let mut random = Random::new(SEED);
    for (number, page) in cold.chunks_exact_mut(PAGE).enumerate() {
        data::fill(page, HOT, SEED, 0, (hot_pages + number) as u64);
        for _ in 0..4 {
            let touched = random.below(hot_pages as u64) as usize;
            let page = &hot[touched * PAGE..][..PAGE];
            if let Err(why) = data::check(page, HOT, SEED, 0, touched as u64) {
                eprintln!("acc-lost: {why}");
                return ExitCode::FAILURE;
            }
        }
    }
    println!("ok");
    ExitCode::SUCCESS
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let pages = |word: &str| word.parse::<usize>().ok().map(|mib| mib << 8);
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["hot", hot_mib, cold_mib] => match (pages(hot_mib), pages(cold_mib)) {
            (Some(hot_pages), Some(cold_pages)) => hot(hot_pages, cold_pages),
            _ => ExitCode::from(2),
        },
        [mib, go] => pages(mib).map_or(ExitCode::from(2), |pages| lost(pages, Path::new(go), LOST)),
        [mib, go, kind] => match (pages(mib), Kind::parse(kind)) {
            (Some(pages), Ok(kind)) => lost(pages, Path::new(go), kind),
            _ => ExitCode::from(2),
        },
        _ => ExitCode::from(2),
    }
}
