//! Groups within a swap: every limit is kept, a device that is not permitted is not used, and the
//! devices' space of a group is free when it ends.

mod common;
#[path = "common/waiting.rs"]
mod waiting;

use common::Numbers;
use folioswap::{Device, Error, FaultMode, Region, ShmemSpace, Swap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use waiting::comes_true;

const PAGE: usize = folioswap_devices::PAGE_SIZE;
const MIB: u64 = 1 << 20;

/// Returns the seed of a page in this round.
fn seed_of(round: u64, page: usize) -> u64 {
    (round * 1_000_003 + page as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

/// Fills each page with its own noise, of which `hard` words of eight do not compress.
fn fill(region: &mut Region, round: u64, hard: usize) {
    for (number, page) in region.as_mut_slice().chunks_mut(PAGE).enumerate() {
        let mut numbers = Numbers(seed_of(round, number));
        for eight in page.chunks_mut(64) {
            for word in eight.chunks_mut(8).take(hard) {
                word.copy_from_slice(&numbers.next().to_ne_bytes());
            }
        }
    }
}

fn check(region: &Region, round: u64, hard: usize) {
    for (number, page) in region.as_slice().chunks(PAGE).enumerate() {
        let mut numbers = Numbers(seed_of(round, number));
        for word in page.chunks(64).flat_map(|eight| eight.chunks(8).take(hard)) {
            assert_eq!(word, numbers.next().to_ne_bytes(), "page {number} of round {round}");
        }
    }
}

fn in_ram_and_file(limit: &str, file: &str) -> Swap {
    let file = Device::file("/var/tmp").size(file).priority(0);
    Swap::builder().limit(limit).device(Device::zram().priority(1)).device(file).validate().build().unwrap()
}

fn is_sound(swap: &Swap) {
    let figure = |name| swap.statistics().counter(name).expect("its name");
    assert_eq!((figure("violations"), figure("pages_poisoned")), (0, 0));
}

/// Returns the most memory that the promise for a limit allows.
fn most(limit: u64) -> u64 {
    limit + limit / 40 + 8 * MIB
}

/// Three levels of groups. Each wants more than it may have, and the groups within one together
/// want more than it has.
#[test]
fn the_limits_of_all_levels_are_kept_at_once() {
    let whole = in_ram_and_file("40M", "256M");
    let outer = whole.group().limit("28M").build().unwrap();
    let inner = outer.group().limit("12M").sigbus().build().unwrap();
    let beside = whole.group().limit("24M").build().unwrap();
    let swaps = [(&whole, 24 * MIB), (&outer, 40 * MIB), (&inner, 30 * MIB), (&beside, 40 * MIB)];
    let (ended, highest) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 4]);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            while !ended.load(Relaxed) {
                for ((swap, _), highest) in swaps.iter().zip(&highest) {
                    highest.fetch_max(swap.statistics().charge(), Relaxed);
                }
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        let workers: Vec<_> = swaps
            .iter()
            .map(|&(swap, bytes)| {
                scope.spawn(move || {
                    let mode =
                        if swap.limit() == 12 * MIB { FaultMode::Sigbus } else { FaultMode::HandlerThreads };
                    let mut region = swap.region_with(bytes, mode).unwrap();
                    for round in 0..2 {
                        fill(&mut region, round, 4);
                        check(&region, round, 4);
                    }
                    is_sound(swap);
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        ended.store(true, Relaxed);
        watch.join().unwrap();
    });
    for ((swap, _), highest) in swaps.iter().zip(highest) {
        let (limit, highest) = (swap.limit(), highest.into_inner());
        assert!(highest <= most(limit), "{highest} of {limit}: {}", swap.statistics());
        assert!(highest > limit / 2, "{highest} of {limit}: nothing was measured");
        assert_eq!(swap.statistics().times_exceeded(), 0);
    }
    for (swap, _) in &swaps[1..] {
        assert!(swap.statistics().counter("pswpout").unwrap() > 1000, "{}", swap.statistics());
    }
}

/// The outermost limit takes memory from an idle group, even one that is within its own limit.
#[test]
fn who_is_idle_gives_to_who_is_not() {
    let whole = in_ram_and_file("32M", "256M");
    let idle = whole.group().limit("28M").build().unwrap();
    let mut kept = idle.region("20M").unwrap();
    fill(&mut kept, 1, 4);
    let before = idle.statistics().resident_bytes();
    assert!(before >= 18 * MIB, "{before}");
    let mut region = whole.region("26M").unwrap();
    for round in 0..3 {
        fill(&mut region, round, 4);
    }
    check(&region, 2, 4);
    let (charge, left) = (whole.statistics().charge(), idle.statistics().resident_bytes());
    assert!(charge <= most(32 * MIB), "{charge}");
    assert!(left < before - 6 * MIB, "{left} of {before} are still there");
    check(&kept, 1, 4);
    is_sound(&whole);
    is_sound(&idle);
}

#[test]
fn only_permitted_devices_are_used() {
    let whole = in_ram_and_file("48M", "256M");
    let figure = |swap: &Swap, name| swap.statistics().counter(name).unwrap();
    let in_store = whole.group().limit("12M").devices([0]).build().unwrap();
    let on_file = whole.group().limit("12M").devices([1]).build().unwrap();
    let both = on_file.group().limit("8M");
    assert!(matches!(both.devices([0, 1]).build(), Err(Error::NoSuchDevice { number: 0, devices: 2 })));
    let mut regions = [&in_store, &on_file].map(|swap| swap.region("24M").unwrap());
    for round in 0..2 {
        regions.iter_mut().for_each(|region| fill(region, round, 1));
        regions.iter().for_each(|region| check(region, round, 1));
    }
    // A nested group may use the devices of the group around it.
    let within = on_file.group().limit("8M").build().unwrap();
    let mut region = within.region("12M").unwrap();
    fill(&mut region, 5, 1);
    check(&region, 5, 1);
    let soon = Duration::from_secs(2);
    let both_store =
        || figure(&in_store, "orig_data_size") > 8 * MIB && figure(&on_file, "file_bytes") > 8 * MIB;
    comes_true(&whole, soon, both_store);
    comes_true(&within, soon, || figure(&within, "file_bytes") > 0);
    // States are published every tenth of a second.
    std::thread::sleep(Duration::from_millis(250));
    assert_eq!(figure(&in_store, "file_bytes"), 0);
    assert_eq!([&on_file, &within].map(|swap| figure(swap, "orig_data_size")), [0, 0]);
    [&whole, &in_store, &on_file, &within].into_iter().for_each(is_sound);
}

/// Tiers that change hold for the group and those within it; what is elsewhere stays, and is right.
#[test]
fn new_pages_go_to_the_tiers_that_are_set() {
    let whole = in_ram_and_file("48M", "256M");
    let figure = |swap: &Swap, name| swap.statistics().counter(name).unwrap();
    let outer = whole.group().limit("16M").build().unwrap();
    let inner = outer.group().limit("12M").build().unwrap();
    let beside = whole.group().limit("12M").build().unwrap();
    outer.set_tiers("0").unwrap();
    let mut regions = [&inner, &beside].map(|swap| swap.region("32M").unwrap());
    regions.iter_mut().for_each(|region| fill(region, 0, 1));
    let soon = Duration::from_secs(5);
    comes_true(&inner, soon, || figure(&inner, "file_bytes") > 8 * MIB);
    comes_true(&beside, soon, || figure(&beside, "orig_data_size") > 8 * MIB);
    assert_eq!(figure(&inner, "orig_data_size"), 0);
    for (wrong, swap) in [("7", &whole), ("", &whole), ("fast", &inner)] {
        assert!(matches!(swap.set_tiers(wrong), Err(Error::Tiers(_))), "{wrong}");
    }
    assert!(matches!(inner.set_tiers("1"), Err(Error::NoDevices)), "the group around it has the other");
    outer.set_tiers("1").unwrap();
    let on_file = figure(&inner, "file_bytes");
    regions.iter_mut().for_each(|region| fill(region, 1, 1));
    comes_true(&inner, soon, || figure(&inner, "orig_data_size") > 8 * MIB);
    assert!(figure(&inner, "file_bytes") <= on_file + 4 * MIB, "it was {on_file}");
    regions.iter().for_each(|region| check(region, 1, 1));
    // No group within may be left without a device, whichever of them is asked.
    outer.set_tiers("all").unwrap();
    inner.set_tiers("0").unwrap();
    assert!(matches!(outer.set_tiers("1"), Err(Error::NoDevices)));
    assert!(matches!(whole.set_tiers("1"), Err(Error::NoDevices)));
    whole.set_tiers("0").unwrap();
    assert!(matches!(whole.group().limit("12M").devices([0]).build(), Err(Error::NoDevices)));
    whole.set_tiers("all").unwrap();
    let restricted = whole.group().limit("12M").devices([1]).build().unwrap();
    assert!(matches!(restricted.set_tiers("1"), Err(Error::NoDevices)));
    [&whole, &outer, &inner, &beside, &restricted].into_iter().for_each(is_sound);
}

/// The file space of a group is free for the next group, any number of times.
#[test]
fn what_a_group_had_is_free_when_it_ends() {
    let whole = in_ram_and_file("48M", "40M");
    for round in 0..5 {
        let group = whole.group().limit("8M").devices([1]).build().unwrap();
        let mut region = group.region("30M").unwrap();
        fill(&mut region, round, 8);
        // States are published every tenth of a second.
        comes_true(&group, Duration::from_secs(2), || {
            group.statistics().counter("file_bytes").unwrap() > 16 * MIB
        });
        drop(group);
        check(&region, round, 8);
        drop(region);
        assert_eq!(whole.statistics().times_exceeded(), 0);
    }
    // The group's number is free too, and none of its memory is counted.
    comes_true(&whole, Duration::from_secs(2), || whole.statistics().charge() < 8 * MIB);
}

/// The group's device is full: its own limit gives way, and no other.
#[test]
fn the_limit_of_a_group_gives_way_alone() {
    let small = Device::file("/var/tmp").size("8M").priority(2);
    let large = Device::file("/var/tmp").size("256M").priority(1);
    let whole = Swap::builder().limit("64M").device(small).device(large).build().unwrap();
    let group = whole.group().limit("8M").devices([0]).build().unwrap();
    let mut region = group.region("24M").unwrap();
    fill(&mut region, 1, 8);
    check(&region, 1, 8);
    assert!(group.statistics().times_exceeded() > 0 && group.limit() > 8 * MIB, "{}", group.statistics());
    assert_eq!((whole.statistics().times_exceeded(), whole.limit()), (0, 64 * MIB));
    assert!(group.statistics().counter("file_bytes").unwrap() <= 8 * MIB);
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let whole = in_ram_and_file("32M", "64M");
    let group = || whole.group().limit("8M");
    assert!(matches!(whole.group().build(), Err(Error::NoLimit)));
    assert!(matches!(whole.group().limit("1M").build(), Err(Error::LimitTooSmall { .. })));
    assert!(matches!(group().devices([]).build(), Err(Error::NoDevices)));
    assert!(matches!(group().devices([7]).build(), Err(Error::NoSuchDevice { number: 7, devices: 2 })));
    assert!(matches!(group().devices([usize::MAX]).build(), Err(Error::NoSuchDevice { .. })));
    let mut deep = vec![group().build().unwrap()];
    while let Ok(deeper) = deep.last().unwrap().group().limit("8M").build() {
        deep.push(deeper);
        assert!(deep.len() < 20);
    }
    assert_eq!(deep.len(), 7, "as deep as can be");
    assert!(matches!(deep.last().unwrap().group().limit("8M").build(), Err(Error::TooManyGroups)));
    // A region keeps its group alive, and that group those around it.
    let mut region = deep.pop().unwrap().region("1M").unwrap();
    deep.clear();
    region.as_mut_slice().fill(3);
    assert!(region.as_slice().iter().all(|&byte| byte == 3));
    drop(region);
    assert!(group().build().unwrap().group().limit("8M").build().is_ok());
    // The limits around a group hold for memory that is pinned or set aside.
    let wide = whole.group().limit("1G").build().unwrap();
    let region = wide.region("64M").unwrap();
    assert!(matches!(region.pin(..20 << 20), Err(Error::PinTooLarge { limit, .. }) if limit == 32 * MIB));
    let aside = |limit: &str| ShmemSpace::builder().limit(limit).device(Device::zram()).within(&wide).build();
    assert!(matches!(aside("28M"), Err(Error::SetAside { limit, .. }) if limit == 32 * MIB));
    let space = aside("8M").unwrap();
    assert!(whole.statistics().charge() >= 8 * MIB && wide.statistics().charge() >= 8 * MIB);
    drop(space);
    drop(region.pin(..8 << 20).unwrap());
    drop(region.pin(..16 << 20).unwrap());
    whole.close();
    assert!(matches!(group().build(), Err(Error::Closed)));
    assert!(wide.region(1).is_ok(), "a group is closed by itself");
}

/// Groups come and go while others work and while the process forks.
#[test]
fn groups_come_and_go_while_others_swap() {
    let whole = in_ram_and_file("32M", "128M");
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let steady = scope.spawn(|| {
            let mut region = whole.region("40M").unwrap();
            for round in 0.. {
                fill(&mut region, round, 4);
                check(&region, round, 4);
                if ended.load(Relaxed) {
                    break;
                }
            }
        });
        let comers: Vec<_> = (0..2)
            .map(|thread| {
                let whole = &whole;
                scope.spawn(move || {
                    for round in 0..6 {
                        let group = whole.group().limit("8M").build().unwrap();
                        let mut region = group.region("12M").unwrap();
                        fill(&mut region, 100 * thread + round, 4);
                        // SAFETY: the child drops its copies, and ends by _exit.
                        let child = unsafe { libc::fork() };
                        if child == 0 {
                            let refused = matches!(group.group().limit("8M").build(), Err(Error::Forked));
                            drop((region, group));
                            // SAFETY: ends the child.
                            unsafe { libc::_exit(if refused { 42 } else { 1 }) };
                        }
                        check(&region, 100 * thread + round, 4);
                        let mut status = 0;
                        // SAFETY: waits for our own child.
                        unsafe { libc::waitpid(child, &raw mut status, 0) };
                        assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, 42));
                        is_sound(&group);
                    }
                })
            })
            .collect();
        comers.into_iter().for_each(|comer| comer.join().unwrap());
        ended.store(true, Relaxed);
        steady.join().unwrap();
    });
    is_sound(&whole);
}
