//! Regions hold the bytes written to them, whatever the limit, advice and other threads do.

#[path = "common/leaving.rs"]
mod leaving;
#[path = "common/waiting.rs"]
mod waiting;

use folioswap::{Device, Error, Region, Swap, SwapBuilder, WhenFull};
use leaving::leaves;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};
use waiting::comes_true;

const PAGE: usize = folioswap_devices::PAGE_SIZE;

/// Held for reading by each test, and for writing by the one that measures the process's memory.
static PROCESS: RwLock<()> = RwLock::new(());

fn among_others() -> RwLockReadGuard<'static, ()> {
    PROCESS.read().unwrap_or_else(PoisonError::into_inner)
}

fn alone() -> RwLockWriteGuard<'static, ()> {
    PROCESS.write().unwrap_or_else(PoisonError::into_inner)
}

/// Reproducible pseudo-random numbers.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) | 1;
        self.0
    }
    fn below(&mut self, end: usize) -> usize {
        (self.next() >> 8) as usize % end
    }
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

fn in_ram_and_file(limit: &str) -> SwapBuilder {
    let file = Device::file("/var/tmp").size("256M").priority(0);
    Swap::builder().limit(limit).device(Device::zram().priority(1)).device(file).validate()
}

/// Asserts that no invariant was broken, and no page lost.
fn is_sound(swap: &Swap) {
    let figure = |name| swap.statistics().counter(name).expect("its name");
    assert_eq!((figure("violations"), figure("pages_poisoned")), (0, 0));
    assert!(figure("validations") > 0 || figure("swapped") == 0);
}

/// Returns the resident anonymous memory of the process.
fn anonymous_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("our own");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

#[test]
fn four_times_the_limit_is_read_as_it_was_written_and_the_limit_is_kept() {
    let _turn = alone();
    let before = anonymous_bytes();
    let (limit, swap) = (16 << 20, in_ram_and_file("16M").build().unwrap());
    let mut region = swap.region("64M").unwrap();
    let (ended, mut most) = (AtomicBool::new(false), 0);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most = 0;
            while !ended.load(Relaxed) {
                most = most.max(anonymous_bytes());
                std::thread::sleep(Duration::from_micros(500));
            }
            most
        });
        for round in 0..2 {
            fill(region.as_mut_slice(), 7 + round);
            check(region.as_slice(), 7 + round);
        }
        ended.store(true, Relaxed);
        most = watch.join().unwrap();
    });
    // The allowance is the promise for the limit, and memory that the test itself takes.
    let allowed = limit + limit / 40 + (8 << 20) + (2 << 20);
    assert!(most > before + limit / 2, "{most} with {before} before: nothing was measured");
    assert!(most <= before + allowed, "{} bytes of {allowed}; {}", most - before, swap.statistics());
    is_sound(&swap);
    drop((region, swap));
    assert!(anonymous_bytes() < before + (8 << 20), "{} and {before} before", anonymous_bytes());
}

/// Each thread has a part of the region, and a copy of it in ordinary memory.
#[test]
fn random_reads_writes_and_advice_of_several_threads_agree_with_an_oracle() {
    let _turn = among_others();
    const THREADS: usize = 4;
    const PART: usize = 6 << 20;
    let swap = in_ram_and_file("8M").build().unwrap();
    let region = swap.region(THREADS * PART).unwrap();
    let seed = std::env::var("FOLIOSWAP_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1_u64);
    let seconds = if std::env::var_os("FOLIOSWAP_LONG").is_some() { 60 } else { 4 };
    println!("FOLIOSWAP_SEED={seed}");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let region = &region;
            scope.spawn(move || {
                let mut numbers = Numbers(seed + 1000 * thread as u64);
                let mut oracle = vec![0_u8; PART];
                let first = thread * PART;
                // SAFETY: each thread has a part of its own.
                let part = unsafe { std::slice::from_raw_parts_mut(region.base().as_ptr().add(first), PART) };
                let until = Instant::now() + Duration::from_secs(seconds);
                while Instant::now() < until {
                    let start = numbers.below(PART - 1);
                    let length = (1 << numbers.below(19)).min(PART - start);
                    let range = start..start + length;
                    match numbers.below(16) {
                        0..5 => assert!(part[range.clone()] == oracle[range], "seed {seed}, thread {thread}"),
                        5..10 => {
                            let seed = numbers.next();
                            fill(&mut part[range.clone()], seed);
                            fill(&mut oracle[range], seed);
                        }
                        10 => {
                            part[range.clone()].fill(length as u8);
                            oracle[range].fill(length as u8);
                        }
                        11 => region.page_out(first + range.start..first + range.end).unwrap(),
                        12 => region.cold(first + range.start..first + range.end).unwrap(),
                        13 => region.will_need(first + range.start..first + range.end).unwrap(),
                        14 => {
                            // This stands for `dont_need`, which would have to borrow the whole
                            // region.
                            let pages = range.start.next_multiple_of(PAGE)..range.end / PAGE * PAGE;
                            if pages.start < pages.end {
                                let place = part[pages.clone()].as_mut_ptr();
                                // SAFETY: whole pages of this thread's part.
                                assert_eq!(0, unsafe { libc::madvise(place.cast(), pages.len(), 4) });
                                oracle[pages].fill(0);
                            }
                        }
                        _ => {
                            if let Ok(_pinned) = region.pin(first + range.start..first + range.end) {
                                assert!(part[range.clone()] == oracle[range], "pinned");
                            }
                        }
                    }
                }
                assert!(part == &oracle[..], "seed {seed}, thread {thread}, at the end");
            });
        }
    });
    is_sound(&swap);
    assert!(swap.statistics().counter("pswpin").unwrap() > 1000);
}

#[test]
fn many_regions_come_and_go_and_leave_nothing() {
    let _turn = among_others();
    let swap = in_ram_and_file("8M").build().unwrap();
    let mut regions: Vec<(Region, u64)> = Vec::new();
    let mut numbers = Numbers(3);
    for round in 0..200 {
        if regions.len() == 64 {
            let (region, seed) = regions.swap_remove(numbers.below(64));
            check(region.as_slice(), seed);
        }
        let mut region = swap.region(PAGE * (1 + numbers.below(160))).unwrap();
        fill(region.as_mut_slice(), round);
        if numbers.below(4) == 0 {
            region.grow(region.len() + PAGE * numbers.below(64)).unwrap();
            fill(region.as_mut_slice(), round);
        }
        regions.push((region, round));
    }
    for (region, seed) in &regions {
        check(region.as_slice(), *seed);
    }
    drop(regions);
    // The counters follow within a few hundred milliseconds.
    let left =
        || ["swapped", "resident", "orig_data_size"].map(|name| swap.statistics().counter(name).unwrap());
    comes_true(&swap, Duration::from_secs(10), || left() == [0; 3]);
    is_sound(&swap);
}

#[test]
fn several_swaps_keep_a_limit_each() {
    let _turn = among_others();
    let swaps: Vec<Swap> = (0..3).map(|_| in_ram_and_file("8M").build().unwrap()).collect();
    std::thread::scope(|scope| {
        for (number, swap) in swaps.iter().enumerate() {
            scope.spawn(move || {
                let mut region = swap.region("16M").unwrap();
                for round in 0..2 {
                    fill(region.as_mut_slice(), 100 * number as u64 + round);
                    check(region.as_slice(), 100 * number as u64 + round);
                }
                assert!(swap.statistics().charge() <= (8 << 20) + (9 << 20));
            });
        }
    });
    swaps.iter().for_each(is_sound);
}

#[test]
fn advice_does_what_it_says() {
    let _turn = among_others();
    let swap = in_ram_and_file("64M").build().unwrap();
    let mut region = swap.region("16M").unwrap();
    fill(region.as_mut_slice(), 5);
    // The engine may still be filling pages around the last write.
    comes_true(&swap, Duration::from_secs(5), || region.resident_bytes(..).unwrap() == 16 << 20);
    region.page_out(4 << 20..12 << 20).unwrap();
    assert_eq!(region.resident_bytes(4 << 20..12 << 20).unwrap(), 0);
    assert_eq!(region.resident_bytes(..4 << 20).unwrap(), 4 << 20);
    region.will_need(4 << 20..8 << 20).unwrap();
    assert_eq!(region.resident_bytes(4 << 20..8 << 20).unwrap(), 4 << 20);
    let pinned = region.pin(1000..3 << 20).unwrap();
    let inner = region.pin(8192..9000).unwrap();
    // Pages read ahead because of the touches above may come back once more.
    assert_eq!(leaves(&region, 3 << 20..16 << 20, 0), 0);
    assert_eq!(region.resident_bytes(..3 << 20).unwrap(), 3 << 20);
    drop(pinned);
    assert_eq!(leaves(&region, 0..16 << 20, PAGE), PAGE, "the inner one stays");
    drop(inner);
    assert_eq!(leaves(&region, 0..16 << 20, 0), 0);
    check(region.as_slice(), 5);
    is_sound(&swap);
}

#[test]
fn what_is_cold_leaves_first() {
    let _turn = among_others();
    let swap = in_ram_and_file("32M").build().unwrap();
    let mut region = swap.region("16M").unwrap();
    fill(region.as_mut_slice(), 5);
    // Some memory must have left before, or all of it counts as cold.
    region.page_out(..PAGE).unwrap();
    region.cold(8 << 20..).unwrap();
    let mut other = swap.region("17M").unwrap();
    fill(other.as_mut_slice(), 6);
    let resident = |range| region.resident_bytes(range).unwrap();
    let (kept, cold) = (resident(0..8 << 20), resident(8 << 20..16 << 20));
    assert!(cold < kept, "{cold} bytes of what is cold stayed, {kept} of the rest");
    check(region.as_slice(), 5);
    is_sound(&swap);
}

#[test]
fn system_calls_read_and_write_what_is_away() {
    let _turn = among_others();
    let swap = in_ram_and_file("16M").build().unwrap();
    assert!(swap.serves_system_calls(), "these tests need the permission");
    let mut region = swap.region("48M").unwrap();
    fill(region.as_mut_slice(), 9);
    let path = std::env::temp_dir().join(format!("folioswap-library-{}", std::process::id()));
    let mut file = File::options().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    // One write(2) of three times the limit, and one read(2) into another such region.
    file.write_all(region.as_slice()).unwrap();
    let mut copy = swap.region("48M").unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_exact(copy.as_mut_slice()).unwrap();
    check(copy.as_slice(), 9);
    check(region.as_slice(), 9);
    is_sound(&swap);
}

#[test]
fn when_all_devices_are_full_the_limit_gives_way() {
    let _turn = among_others();
    let swap = Swap::builder()
        .limit("8M")
        .when_full(WhenFull::Exceed)
        .device(Device::file("/var/tmp").size("4M"))
        .build()
        .unwrap();
    let mut region = swap.region("20M").unwrap();
    fill(region.as_mut_slice(), 11);
    check(region.as_slice(), 11);
    let statistics = swap.statistics();
    assert!(statistics.times_exceeded() > 0 && statistics.limit() > 8 << 20, "{statistics}");
    swap.set_limit("32M").unwrap();
    assert_eq!(swap.limit(), 32 << 20);
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let _turn = among_others();
    let swap = Swap::builder().limit("16M").build().unwrap();
    assert!(matches!(swap.region(0), Err(Error::ZeroSize)));
    assert!(matches!(swap.region(u64::MAX), Err(Error::TooLarge { .. })));
    assert!(matches!(swap.region(usize::MAX - 5000), Err(Error::TooLarge { .. })));
    assert!(matches!(swap.region("100T"), Err(Error::TooLarge { .. })));
    assert!(matches!(swap.region("4G"), Err(Error::TooLarge { .. })), "its tables alone are above the limit");
    assert!(matches!(swap.region("lots"), Err(Error::Size { .. })));
    assert!(matches!(swap.set_limit(1), Err(Error::LimitTooSmall { .. })));
    assert!(matches!(Swap::builder().limit(LEAST - 1).build(), Err(Error::LimitTooSmall { .. })));
    let mut region = swap.region(10).unwrap();
    assert!(matches!(region.page_out(5..11), Err(Error::OutOfRange { end: 11, length: 10, .. })));
    #[allow(clippy::reversed_empty_ranges)]
    let reversed = region.cold(5..4);
    assert!(matches!(reversed, Err(Error::OutOfRange { .. })));
    assert!(matches!(region.grow("100T"), Err(Error::TooLarge { .. })));
    assert_eq!(region.len(), 10);
    region.grow(3).unwrap();
    assert_eq!(region.len(), 10);
    let large = swap.region("12M").unwrap();
    assert!(matches!(large.pin(..), Err(Error::PinTooLarge { pinned: 0, .. })));
    region.page_out(3..3).unwrap();
    swap.close();
    assert!(matches!(swap.clone().region(1), Err(Error::Closed)));
    region.as_mut_slice().fill(3);
    assert_eq!(region.as_slice(), [3; 10], "those there are go on");
}

const LEAST: u64 = folioswap::LEAST_LIMIT;
