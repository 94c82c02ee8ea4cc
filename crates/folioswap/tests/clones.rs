//! Copy-on-write clones of regions: neither sees the other's writes, and common pages are stored
//! once.

mod common;
#[path = "common/waiting.rs"]
mod waiting;

use common::Numbers;
use folioswap::{Device, Error, FaultMode, Region, Swap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use waiting::comes_true;

const PAGE: usize = folioswap_devices::PAGE_SIZE;
const MODES: [FaultMode; 2] = [FaultMode::HandlerThreads, FaultMode::Sigbus];

fn swap(limit: &str) -> Swap {
    let file = Device::file("/var/tmp").size("512M").priority(0);
    let zram = Device::zram().priority(1);
    Swap::builder().limit(limit).device(zram).device(file).sigbus().validate().build().unwrap()
}

/// Fills memory so that half of each page does not compress.
fn fill(bytes: &mut [u8], seed: u64) {
    let mut numbers = Numbers(seed);
    for chunk in bytes.chunks_exact_mut(16) {
        chunk[..8].copy_from_slice(&numbers.next().to_ne_bytes());
    }
}

fn check(bytes: &[u8], seed: u64) {
    let mut numbers = Numbers(seed);
    for (number, chunk) in bytes.chunks_exact(16).enumerate() {
        assert_eq!(chunk[..8], numbers.next().to_ne_bytes(), "chunk {number} of seed {seed}");
    }
}

fn figure(swap: &Swap, name: &str) -> u64 {
    swap.statistics().counter(name).expect("its name")
}

/// Asserts that no invariant was broken, and no page lost.
fn is_sound(swap: &Swap) {
    assert_eq!((figure(swap, "violations"), figure(swap, "pages_poisoned")), (0, 0), "{}", swap.statistics());
    assert!(figure(swap, "validations") > 0);
}

/// Returns the bytes that the compressed store and the file take.
fn stored(swap: &Swap) -> u64 {
    figure(swap, "mem_used_total") + figure(swap, "file_bytes")
}

/// Waits until `bytes` that were paged out have been written. The staging ring, which holds them
/// before, is emptied first when memory is paged out. The counters are published from time to time,
/// and are those of before until then.
fn all_is_stored(swap: &Swap, bytes: usize) {
    let written = || figure(swap, "orig_data_size") + figure(swap, "file_bytes");
    comes_true(swap, Duration::from_secs(10), || written() >= bytes as u64);
}

/// Waits until nothing is stored any more. Pages that wait in staging are the first to leave when
/// memory is paged out. The counters are published within two seconds.
fn nothing_is_left(swap: &Swap) {
    for mode in MODES {
        swap.region_with(1, mode).unwrap().page_out(..).unwrap();
    }
    let left = || ["swapped", "file_bytes", "orig_data_size"].map(|name| figure(swap, name));
    comes_true(swap, Duration::from_secs(2), || left() == [0; 3]);
}

#[test]
fn a_clone_and_its_original_are_apart_and_what_they_share_is_stored_once() {
    for mode in MODES {
        let swap = swap("24M");
        let mut region = swap.region_with("48M", mode).unwrap();
        fill(region.as_mut_slice(), 3);
        region.page_out(..).unwrap();
        all_is_stored(&swap, region.len());
        let before = stored(&swap);
        let mut clones: Vec<Region> = (0..3).map(|_| region.try_clone().unwrap()).collect();
        assert!(clones.iter().all(|clone| (clone.len(), clone.fault_mode()) == (48 << 20, mode)));
        assert!(stored(&swap) <= before + before / 50, "{} after {before}", stored(&swap));
        // Each clone writes every fourth page.
        for (number, clone) in clones.iter_mut().enumerate() {
            for page in clone.as_mut_slice().chunks_mut(PAGE).skip(number).step_by(4) {
                fill(page, 100 + number as u64);
            }
        }
        check(region.as_slice(), 3);
        drop(region);
        let mut expected = vec![0; 48 << 20];
        fill(&mut expected, 3);
        let mut own = [0; PAGE];
        for (number, clone) in clones.iter().enumerate() {
            fill(&mut own, 100 + number as u64);
            for (page, bytes) in clone.as_slice().chunks(PAGE).enumerate() {
                let of = if page % 4 == number { &own[..] } else { &expected[page * PAGE..][..PAGE] };
                assert!(bytes == of, "page {page} of clone {number}");
            }
        }
        is_sound(&swap);
        drop(clones);
        nothing_is_left(&swap);
    }
}

/// Holes stay holes, and lengths that are no whole pages are kept.
#[test]
fn holes_and_odd_lengths_are_cloned() {
    let swap = swap("16M");
    let mut region = swap.region((512_usize << 20) + 5).unwrap();
    let last = region.len() - 1;
    (region.as_mut_slice()[7], region.as_mut_slice()[last]) = (1, 2);
    let mut clone = region.try_clone().unwrap();
    assert_eq!((clone.len(), clone.as_slice()[7], clone.as_slice()[last]), (last + 1, 1, 2));
    assert_eq!(clone.as_slice()[8..1 << 20].iter().position(|&byte| byte != 0), None);
    clone.grow(last + 10).unwrap();
    assert_eq!(clone.as_slice()[last..], [2, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    region.dont_need(..).unwrap();
    assert_eq!((region.as_slice()[last], clone.as_slice()[last]), (0, 2));
    assert_eq!(swap.region(1).unwrap().try_clone().unwrap().as_slice(), [0]);
}

#[test]
fn what_cannot_leave_is_copied() {
    for mode in MODES {
        let swap = swap("32M");
        let mut region = swap.region_with("8M", mode).unwrap();
        fill(region.as_mut_slice(), 5);
        let pinned = region.pin(1 << 20..7 << 20).unwrap();
        let mut clone = region.try_clone().unwrap();
        assert!(region.resident_bytes(1 << 20..7 << 20).unwrap() == 6 << 20, "pinned");
        drop(pinned);
        check(clone.as_slice(), 5);
        clone.as_mut_slice().fill(0);
        check(region.as_slice(), 5);
        is_sound(&swap);
    }
}

/// Regions, and clones of clones, against copies in ordinary memory.
#[test]
fn random_clones_agree_with_an_oracle() {
    const BYTES: usize = 4 << 20;
    let seed = std::env::var("FOLIOSWAP_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1_u64);
    let seconds = if std::env::var_os("FOLIOSWAP_LONG").is_some() { 60 } else { 4 };
    println!("FOLIOSWAP_SEED={seed}");
    for (mode, seed) in MODES.into_iter().zip([seed, seed + 1]) {
        let swap = swap("10M");
        let mut numbers = Numbers(seed);
        let mut below = move |end: usize| (numbers.next() >> 8) as usize % end;
        let mut all = vec![(swap.region_with(BYTES, mode).unwrap(), vec![0_u8; BYTES])];
        let until = Instant::now() + Duration::from_secs(seconds);
        let mut clones = 0;
        while Instant::now() < until {
            let number = below(all.len());
            let start = below(BYTES - 1);
            let range = start..(start + (1 << below(21))).min(BYTES);
            let count = all.len();
            let (region, oracle) = &mut all[number];
            match below(16) {
                0..4 => assert!(region.as_slice()[range.clone()] == oracle[range], "seed {seed}"),
                4..8 => {
                    let seed = below(1 << 30) as u64 + 1;
                    fill(&mut region.as_mut_slice()[range.clone()], seed);
                    fill(&mut oracle[range], seed);
                }
                8 => {
                    region.as_mut_slice()[range.clone()].fill(start as u8);
                    oracle[range].fill(start as u8);
                }
                9 => region.page_out(range).unwrap(),
                10 => region.will_need(range).unwrap(),
                11 => {
                    region.dont_need(range.clone()).unwrap();
                    oracle[range].fill(0);
                }
                12..14 if count < 8 => {
                    let clone = (all[number].0.try_clone().unwrap(), all[number].1.clone());
                    all.push(clone);
                    clones += 1;
                }
                14 if count > 1 => {
                    let (region, oracle) = all.swap_remove(number);
                    assert!(region.as_slice() == oracle, "seed {seed}");
                }
                _ => region.cold(range).unwrap(),
            }
        }
        for (region, oracle) in &all {
            assert!(region.as_slice() == oracle, "seed {seed}");
        }
        assert!(clones > 5, "{clones} clones");
        is_sound(&swap);
        drop(all);
        nothing_is_left(&swap);
    }
}

/// Threads read the original and clones, and write to others, while clones of all of it are made.
#[test]
fn clones_are_made_while_threads_read_and_write() {
    const PAGES: usize = 2048;
    for mode in MODES {
        let swap = swap("8M");
        let region = swap.region_with(PAGES * PAGE, mode).unwrap();
        // The first word of each page counts upwards; the rest of the page is constant.
        let word = |region: &Region, page: usize| {
            // SAFETY: within the region, which is used by atomic accesses alone.
            unsafe { AtomicU64::from_ptr(region.base().as_ptr().add(page * PAGE).cast()) }.load(Relaxed)
        };
        let noise = |page: usize| {
            let mut bytes = [0; PAGE - 8];
            fill(&mut bytes, page as u64 + 1);
            bytes
        };
        for page in 0..PAGES {
            // SAFETY: no other thread uses the region yet.
            unsafe {
                let at = region.base().as_ptr().add(page * PAGE + 8);
                at.copy_from_nonoverlapping(noise(page).as_ptr(), PAGE - 8);
            }
        }
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..2 {
                let (region, ended) = (&region, &ended);
                scope.spawn(move || {
                    let mut numbers = Numbers(writer + 1);
                    while !ended.load(Relaxed) {
                        let page = (numbers.next() >> 8) as usize % PAGES;
                        // SAFETY: within the region, which is used by atomic accesses alone.
                        unsafe { AtomicU64::from_ptr(region.base().as_ptr().add(page * PAGE).cast()) }
                            .fetch_add(1, Relaxed);
                    }
                });
            }
            let until = Instant::now() + Duration::from_secs(2);
            while Instant::now() < until {
                let before: Vec<u64> = (0..PAGES).map(|page| word(&region, page)).collect();
                let clone = region.try_clone().unwrap();
                let after: Vec<u64> = (0..PAGES).map(|page| word(&region, page)).collect();
                let again = clone.try_clone().unwrap();
                for page in 0..PAGES {
                    let found = word(&clone, page);
                    assert!((before[page]..=after[page]).contains(&found), "page {page}");
                    assert_eq!(word(&again, page), found, "page {page}");
                    // SAFETY: no thread writes to a clone.
                    let rest = unsafe {
                        std::slice::from_raw_parts(clone.base().as_ptr().add(page * PAGE + 8), PAGE - 8)
                    };
                    assert!(rest == noise(page), "page {page}");
                }
            }
            ended.store(true, Relaxed);
        });
        is_sound(&swap);
    }
}

#[test]
fn what_cannot_be_cloned_is_refused() {
    let swap = swap("16M");
    let region = swap.region("64M").unwrap();
    swap.close();
    assert!(matches!(region.try_clone(), Err(Error::Closed)));
    // SAFETY: the child only looks, and ends without running a destructor.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let is_refused = matches!(region.try_clone(), Err(Error::Forked));
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(!is_refused)) };
    }
    let mut status = 0;
    // SAFETY: waits for our own child.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}
