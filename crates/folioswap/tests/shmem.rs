//! Objects hold the bytes written to them under a limit that makes them swap, alone and beside the
//! regions of a swap.

mod common;

use common::Numbers;
use folioswap::{Device, Error, HugePolicy, ShmemError, ShmemObject, ShmemSpace, Swap};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const PAGE: usize = folioswap_devices::PAGE_SIZE;

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        (self.next() >> 8) as usize % end.max(1)
    }
    /// Returns bytes that do not compress, compress to a half, or are all equal.
    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let kind = self.below(3);
        let alike = self.next().to_ne_bytes();
        let words = (0..length.div_ceil(8)).flat_map(|number| match kind {
            0 => self.next().to_ne_bytes(),
            1 if number % 2 == 0 => self.next().to_ne_bytes(),
            _ => alike,
        });
        words.take(length).collect()
    }
}

fn seed() -> u64 {
    let seed = std::env::var("FOLIOSWAP_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1_u64);
    println!("FOLIOSWAP_SEED={seed}");
    seed
}

/// Does one operation on an object, and the same on the vector that is its oracle.
fn step(numbers: &mut Numbers, object: &ShmemObject, expected: &mut Vec<u8>, most: usize) {
    let offset = numbers.below(most);
    let scale = [100, PAGE, 16 * PAGE, 300 * PAGE][numbers.below(4)];
    let length = numbers.below(scale + 1).min(most - offset);
    match numbers.below(16) {
        0..=5 => {
            let mut found = vec![0xaa; length];
            let read = object.read(offset as u64, &mut found).unwrap();
            let there = expected.get(offset..).unwrap_or_default();
            assert!(found[..read] == there[..length.min(there.len())], "{length} bytes from {offset}");
        }
        6 => {
            let (mut at, there) = (0, expected.get(offset..).unwrap_or_default());
            let lent = object.read_with(offset as u64, length, |piece| {
                assert!(piece == &there[at..at + piece.len()], "lent from {offset}");
                at += piece.len();
            });
            assert_eq!(lent, Ok(length.min(there.len())));
        }
        7..=12 => {
            let new = numbers.bytes(length);
            assert_eq!(object.write(offset as u64, &new), Ok(length));
            if length > 0 {
                expected.resize(expected.len().max(offset + length), 0);
                expected[offset..offset + length].copy_from_slice(&new);
            }
        }
        13 => {
            object.set_size(offset as u64).unwrap();
            expected.resize(offset, 0);
        }
        14 => {
            object.punch_hole(offset as u64, length as u64).unwrap();
            let end = expected.len();
            expected[offset.min(end)..(offset + length).min(end)].fill(0);
        }
        _ => {
            object.page_out().unwrap();
        }
    }
    assert_eq!(object.size(), expected.len() as u64);
}

/// Three threads with two objects each, within 8 MiB of a swap of 20 MiB, beside a thread that goes
/// through a region of 40 MiB of the same swap.
#[test]
fn objects_and_regions_within_one_limit_are_what_was_written() {
    let file = || Device::file("/var/tmp").size("256M");
    let swap = Swap::builder().limit("20M").device(Device::zram().priority(1)).device(file().priority(0));
    let swap = swap.validate().build().unwrap();
    let space = ShmemSpace::builder().limit("8M").device(file()).within(&swap).build().unwrap();
    let (seed, ended) = (seed(), AtomicBool::new(false));
    let operations = std::env::var("FOLIOSWAP_OPERATIONS").map_or(700, |text| text.parse().unwrap());
    std::thread::scope(|scope| {
        let beside = scope.spawn(|| {
            let mut region = swap.region("40M").unwrap();
            for round in 0_u64.. {
                for (number, page) in region.as_mut_slice().chunks_mut(PAGE).enumerate() {
                    let expected = [round.wrapping_sub(1), number as u64].map(u64::to_ne_bytes).concat();
                    assert!(round == 0 || page[..16] == expected, "round {round}, page {number}");
                    page[..16].copy_from_slice(&[round, number as u64].map(u64::to_ne_bytes).concat());
                }
                if ended.load(Relaxed) {
                    break;
                }
            }
        });
        let threads = [0_u64, 1, 2].map(|thread| {
            let space = &space;
            scope.spawn(move || {
                let mut numbers = Numbers((seed * 31 + thread + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
                let policies = [HugePolicy::Always, HugePolicy::WithinSize];
                let mut checked = policies.map(|huge| (space.object_with(huge).unwrap(), Vec::new()));
                for operation in 0..operations {
                    let (object, expected) = &mut checked[numbers.below(2)];
                    step(&mut numbers, object, expected, 5 << 20);
                    if operation % 64 == 0 {
                        let charge = space.statistics().unwrap().charge();
                        assert!(charge <= (8 << 20) + (8 << 20) / 40 + (8 << 20), "{charge}");
                    }
                }
                for (object, expected) in &checked {
                    let mut found = vec![0; expected.len()];
                    assert_eq!(object.read(0, &mut found), Ok(found.len()));
                    assert!(found == *expected);
                }
            })
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let statistics = swap.statistics();
        assert!(statistics.charge() <= (20 << 20) + (20 << 20) / 40 + (8 << 20), "{statistics}");
        ended.store(true, Relaxed);
        beside.join().unwrap();
    });
    let statistics = space.statistics().unwrap();
    for name in ["pswpin", "pswpout"] {
        assert!(statistics.counter(name).unwrap() > 100, "{name}: {statistics}");
    }
    assert_eq!(statistics.content_bytes(), 0, "all objects are gone");
    space.validate().unwrap();
    let figure = |name| swap.statistics().counter(name).unwrap();
    assert_eq!((figure("violations"), figure("pages_poisoned")), (0, 0));
    drop(space);
    assert!(swap.statistics().charge() <= 20 << 20);
    assert!(swap.set_limit("8M").is_ok(), "nothing is set aside any more");
}

#[test]
fn what_is_set_aside_is_there_as_long_as_the_space() {
    let swap = Swap::builder().limit("24M").build().unwrap();
    let space = || ShmemSpace::builder().device(Device::zram()).within(&swap);
    let first = space().limit("10M").build().unwrap();
    assert!(swap.statistics().charge() >= 10 << 20);
    let refused = space().limit("10M").build();
    assert!(
        matches!(refused, Err(Error::SetAside { bytes, aside, limit }) if (bytes, aside, limit) == (10 << 20, 10 << 20, 24 << 20))
    );
    assert!(
        matches!(swap.set_limit("16M"), Err(Error::LimitTooSmall { least, .. }) if least == 18 << 20),
        "less than what is left would be"
    );
    // An object keeps its space alive, and that the bytes set aside.
    let object = first.object().unwrap();
    drop(first);
    object.write(0, &[7; 100_000]).unwrap();
    assert!(swap.statistics().charge() >= 10 << 20);
    drop(object);
    assert!(swap.statistics().charge() < 10 << 20);
    swap.close();
    assert!(matches!(space().limit("8M").build(), Err(Error::Closed)));
}

#[test]
fn who_is_lent_bytes_cannot_change_objects_meanwhile() {
    let space = ShmemSpace::builder().limit("8M").device(Device::zram()).build().unwrap();
    let (one, other) = (space.object().unwrap(), space.object().unwrap());
    one.write(0, &[1; 2 * PAGE]).unwrap();
    let mut pieces = 0;
    let lent = one.read_with(0, 2 * PAGE, |piece| {
        pieces += 1;
        assert_eq!(one.write(0, piece), Err(ShmemError::Lent));
        assert_eq!(other.write(0, piece), Err(ShmemError::Lent));
        assert_eq!(other.set_size(1), Err(ShmemError::Lent));
        assert_eq!(other.punch_hole(0, 1), Err(ShmemError::Lent));
        assert_eq!(other.allocate(0, 1), Err(ShmemError::Lent));
        assert_eq!(other.page_out(), Err(ShmemError::Lent));
        let mut bytes = [0; 8];
        assert_eq!(one.read_with(0, 8, |inner| bytes.copy_from_slice(inner)), Ok(8));
        assert_eq!(bytes, [1; 8]);
        assert_eq!(other.write(0, &bytes), Err(ShmemError::Lent), "the outer loan goes on");
    });
    assert_eq!((lent, pieces), (Ok(2 * PAGE), 2));
    let panics = || one.read_with(0, 1, |_| panic!("in the middle"));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics));
    assert!(panicked.is_err());
    assert_eq!(other.write(0, b"after"), Ok(5));
    assert_eq!(one.write(0, b"after"), Ok(5));
}

#[test]
fn a_full_space_says_so_and_loses_nothing() {
    let space = ShmemSpace::builder().limit("6M").device(Device::zram()).build().unwrap();
    let object = space.object().unwrap();
    let mut numbers = Numbers(9);
    let noise: Vec<u8> = (0..16 << 17).flat_map(|_| numbers.next().to_ne_bytes()).collect();
    let written = match object.write(0, &noise) {
        Ok(written) => written,
        Err(error) => panic!("{error}: some of it fits"),
    };
    assert!((2 << 20..16 << 20).contains(&written), "{written}");
    assert_eq!(object.write(written as u64, &noise[..PAGE]), Err(ShmemError::NoSpace));
    let mut found = vec![0; written];
    assert_eq!(object.read(0, &mut found), Ok(written));
    assert!(found == noise[..written]);
    object.set_size(1 << 20).unwrap();
    assert_eq!(object.write(1 << 20, &noise[..PAGE]), Ok(PAGE), "there is room again");
    assert_eq!(object.set_size(1 << 63), Err(ShmemError::TooLarge));
}

#[test]
fn a_forked_child_is_refused_and_ends_in_peace() {
    let space = ShmemSpace::builder().limit("8M").build().unwrap();
    let object = space.object().unwrap();
    object.write(0, &[5; 3 * PAGE]).unwrap();
    // SAFETY: the child takes no lock that another thread may hold, and ends by _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut byte = [0];
        let refused = object.read(0, &mut byte) == Err(ShmemError::Forked)
            && object.write(0, &byte) == Err(ShmemError::Forked)
            && matches!(space.object(), Err(Error::Forked))
            && matches!(space.statistics(), Err(Error::Forked));
        drop(object);
        drop(space);
        // SAFETY: ends the child.
        unsafe { libc::_exit(if refused { 42 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: waits for our own child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, 42));
    let mut bytes = vec![0; 3 * PAGE];
    assert_eq!(object.read(0, &mut bytes), Ok(3 * PAGE));
    assert_eq!(bytes, [5; 3 * PAGE]);
}

/// The mapping has the content, and holes stay holes. Neither side sees the other's writes.
#[test]
fn a_private_mapping_holds_what_the_object_held() {
    let swap = Swap::builder().limit("24M").validate().build().unwrap();
    let space = ShmemSpace::builder().limit("8M").within(&swap).build().unwrap();
    let object = space.object().unwrap();
    let mut numbers = Numbers(31);
    let noise: Vec<u8> = (0..20 << 16).flat_map(|_| numbers.next().to_ne_bytes()).collect();
    object.write(5, &noise).unwrap();
    object.write((64 << 20) + 1, b"behind a hole").unwrap();
    object.page_out().unwrap();
    let mut region = object.map(&swap, ..).unwrap();
    assert_eq!(region.len() as u64, object.size());
    assert!(region.as_slice()[5..5 + noise.len()] == noise);
    assert_eq!(region.as_slice()[(64 << 20) + 1..], *b"behind a hole");
    assert_eq!((region.as_slice()[4], region.as_slice()[40 << 20]), (0, 0));
    assert!(region.resident_bytes(30 << 20..60 << 20).unwrap() <= 2 << 20, "holes stay holes");
    region.as_mut_slice()[6] ^= 0xff;
    object.write(7, &[noise[2] ^ 0xff]).unwrap();
    let mut found = [0; 3];
    object.read(5, &mut found).unwrap();
    assert_eq!(found, [noise[0], noise[1], noise[2] ^ 0xff]);
    assert_eq!(region.as_slice()[5..8], [noise[0], noise[1] ^ 0xff, noise[2]]);
    // The mapping's contents are written back.
    object.write(0, &region.as_slice()[..1 << 20]).unwrap();
    object.read(5, &mut found).unwrap();
    assert_eq!(found, [noise[0], noise[1] ^ 0xff, noise[2]]);
    // A part that is not aligned to pages.
    let part = object.map(&swap, 4099..=9000).unwrap();
    assert_eq!(part.as_slice(), &noise[4094..8996]);
    assert_eq!(object.map(&swap, 1 << 25..(1 << 25) + 3).unwrap().as_slice(), [0; 3]);
    let end = object.size();
    assert!(matches!(object.map(&swap, end..end + 1), Err(Error::OutOfRange { .. })));
    assert!(object.map(&swap, 7..7).is_err());
    swap.close();
    assert!(matches!(object.map(&swap, ..), Err(Error::Closed)));
}
