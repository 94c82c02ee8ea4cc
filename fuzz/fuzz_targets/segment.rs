//! The memories of a group with words that anybody may have written: the segment, which all members
//! write, and decisions of a damaged or foreign group. Every word may have any value; whoever reads
//! gets figures within their bounds, in bounded work.
//!
//! An input is a list of words of 12 bytes: where the word stands, and its value.
#![no_main]

use folioswap_group::counters::{Counter, ORDERS, SizeCounter};
use folioswap_group::decisions::{Decisions, PAGE_CLUSTER_MAX};
use folioswap_group::devices::DEVICES_MAX;
use folioswap_group::group::Group;
use folioswap_group::nested::{DEPTH_MAX, GROUPS_MAX};
use folioswap_group::seat::WEIGHT_MAX;
use folioswap_group::segment::{MEMBERS_MAX, Segment};
use libfuzzer_sys::fuzz_target;
use std::alloc::{Layout, alloc_zeroed};
use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Most moments that one look at a ring may give.
const MOMENTS_MAX: usize = 31;
/// Looks at members, from the first on; the words of the others are the same.
const LOOKS: usize = 4;

/// A value of only atomics, all zero, that is never freed.
fn zeroed<T>() -> &'static T {
    // SAFETY: decisions and segment consist of atomic integers, for which zero is valid; the
    // allocation is aligned for them, and is never freed.
    unsafe { alloc_zeroed(Layout::new::<T>()).cast::<T>().as_ref() }.expect("memory")
}

/// The words of such a value.
fn words<T>(of: &'static T) -> &'static [AtomicU64] {
    // SAFETY: it is aligned to 64 bytes and consists of atomic integers alone, which threads of
    // this process access as atomics only.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(of).cast(), size_of::<T>() / 8) }
}

fn read(group: Group<'_>) {
    let Group { decisions, segment } = group;
    let _ = (decisions.check(), decisions.scope(), decisions.state(), decisions.progress());
    assert!(decisions.page_cluster() <= PAGE_CLUSTER_MAX);
    assert!(decisions.devices().count() <= DEVICES_MAX);
    assert!(decisions.seats_in_use().len() <= MEMBERS_MAX);
    assert_eq!(decisions.owners_of(u32::MAX), 0);
    assert!(group.certain_charge_bytes() <= group.charge_bytes());
    assert!(group.taken().count() == group.live_members().count());
    let _ = (group.announced_bytes(), group.faults_served());
    for number in (0..4).chain([GROUPS_MAX as u32 - 1, GROUPS_MAX as u32, u32::MAX]) {
        let around: Vec<u32> = decisions.around(number).collect();
        assert!((1..=DEPTH_MAX).contains(&around.len()));
        assert!(around.iter().all(|group| (*group as usize) < GROUPS_MAX));
        assert!(decisions.is_within(number, 0));
        assert!(group.certain_charge_within(number) <= group.charge_within(number));
        assert!(decisions.masked_devices() & !decisions.masked_devices_around(number) == 0);
    }
    let _ = decisions.would_have_devices(1, 2, 3);
    for (seat, member) in decisions.seats.iter().zip(&segment.members).take(LOOKS) {
        assert!((1..=WEIGHT_MAX).contains(&seat.weight()));
        let tightest = group.tightest(seat);
        assert!(group.bounds(seat).count() <= DEPTH_MAX);
        assert!(decisions.least_limit(seat) <= tightest.limit);
        assert!(member.charge() <= member.charge_bytes.load(Relaxed));
        for ring in [&member.course.faults, &member.course.batches] {
            for seen in [0, 1, u64::MAX] {
                let mut taken = 0;
                let (next, missed) = ring.since(seen, |_| taken += 1);
                assert!(taken <= MOMENTS_MAX && missed <= next);
                // Nothing is told twice.
                ring.since(next, |_| panic!("a moment is told twice"));
            }
        }
        for counter in Counter::ALL {
            let _ = (member.figures.counter(*counter), decisions.ended_counter(*counter));
        }
        for size in SizeCounter::ALL {
            let _ = [0, ORDERS - 1, ORDERS, usize::MAX].map(|order| member.figures.size(*size, order));
        }
        let _ = (member.course.refaults.counts(), member.course.latency.counts());
    }
}

fuzz_target!(|data: &[u8]| {
    static MEMORY: OnceLock<(&'static Decisions, &'static Segment)> = OnceLock::new();
    let &(decisions, segment) = MEMORY.get_or_init(|| (zeroed(), zeroed()));
    let mut written = BTreeSet::new();
    for chunk in data.as_chunks::<12>().0.iter().take(64) {
        let (place, value) = chunk.split_first_chunk::<4>().expect("12 bytes");
        let place = u32::from_le_bytes(*place) as usize;
        let value = u64::from_le_bytes(value.try_into().expect("8 bytes"));
        let all = if place & 1 == 0 { words(decisions) } else { words(segment) };
        let at = (place >> 1) % all.len();
        all[at].store(value, Relaxed);
        written.insert((place & 1, at));
    }
    read(Group { decisions, segment });
    for (which, at) in written {
        let all = if which == 0 { words(decisions) } else { words(segment) };
        all[at].store(0, Relaxed);
    }
});
