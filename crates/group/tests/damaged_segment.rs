//! A segment in which any word may be wrong. Every member can write all of it, so whatever stands
//! there, each method that reads it returns something in range and panics nowhere.

use folioswap_group::counters::{Counter, Gauge, ORDERS, SizeCounter};
use folioswap_group::devices::{DEVICES_MAX, DeviceEntry};
use folioswap_group::folio_orders::Advised;
use folioswap_group::nested::{Bound, DEPTH_MAX, GROUPS_MAX, WHOLE};
use folioswap_group::segment::{
    Faulting, GroupState, MEMBERS_MAX, Member, MemberState, PAGE_CLUSTER_MAX, Segment,
};
use proptest::prelude::*;
use std::sync::atomic::Ordering::Relaxed;

/// Values around the ends of indexes, shifts, signs and sums. A field of four bytes sees either
/// half.
const SPECIAL: [u64; 18] = [
    0,
    1,
    1 << 32 | 1,
    2 << 32 | 2,
    5 << 32 | 5,
    31 << 32 | 32,
    33 << 32 | 63,
    64 << 32 | 65,
    1000 << 32 | 1000,
    4095 << 32 | 4096,
    i32::MAX as u64,
    1 << 31,
    u32::MAX as u64,
    1 << 32,
    u64::MAX << 32,
    i64::MAX as u64,
    i64::MIN as u64,
    u64::MAX,
];

/// The numbers of groups, members and orders that a caller may have read somewhere.
const NUMBERS: [u32; 9] = [0, 1, 2, 63, 64, 1000, 4096, i32::MAX as u32, u32::MAX];

/// A segment whose words are these, by index.
fn filled(mut word: impl FnMut(usize) -> u64) -> Box<Segment> {
    let mut segment = Box::<Segment>::new_uninit();
    let words = segment.as_mut_ptr().cast::<u64>();
    for index in 0..size_of::<Segment>() / size_of::<u64>() {
        // SAFETY: within the segment, which is aligned to a word; nothing else refers to it.
        unsafe { words.add(index).write(word(index)) };
    }
    // SAFETY: every word is written, and the segment consists of atomics, for which any bytes are
    // valid.
    unsafe { segment.assume_init() }
}

/// The same, with as many live members as there can be.
fn all_live(segment: Box<Segment>) -> Box<Segment> {
    segment.header.members_high.store(u32::MAX, Relaxed);
    for member in &segment.members {
        member.state.store(MemberState::Live as u32, Relaxed);
    }
    segment
}

/// Random words, every second one a special value. Small, fast and with its whole state in a word
/// (SplitMix64).
fn random(mut state: u64) -> impl FnMut(usize) -> u64 {
    let mut next = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = state;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    };
    move |_| match next() {
        choice if choice & 1 == 0 => SPECIAL[(choice >> 1) as usize % SPECIAL.len()],
        _ => next(),
    }
}

fn read_device(entry: &DeviceEntry) {
    if let Some(device) = entry.description() {
        let _ = (device.kind.name(), device.kind.is_in_memory(), device.io);
    }
    let _ = (entry.is_full(), entry.is_failed(), entry.usage(), entry.takes_pages(), entry.orders());
}

fn read_groups(segment: &Segment) {
    for group in NUMBERS {
        let around: Vec<u32> = segment.around(group).collect();
        assert!((1..=DEPTH_MAX).contains(&around.len()));
        assert!(around.iter().all(|number| (*number as usize) < GROUPS_MAX));
        let _ = (segment.charge_within(group), segment.certain_charge_within(group));
        let _ = (segment.limit_of(group), segment.members_within(group).count());
        for outer in NUMBERS {
            let _ = segment.is_within(group, outer);
        }
    }
}

fn read_member(segment: &Segment, member: &Member) {
    assert!((member.group() as usize) < GROUPS_MAX);
    let _ = (member.is_live(), member.charge(), segment.least_limit(member));
    let sharing = &member.sharing;
    let before = sharing.before_measuring(&segment.header);
    let _ = (sharing.discount(), sharing.ended_bytes(), sharing.stale_bytes(&segment.header));
    sharing.publish(before, u64::MAX);
    sharing.end(&segment.header, u64::MAX);
    let figures = &member.figures;
    for &counter in Counter::ALL {
        let _ = figures.counter(counter);
    }
    for (&counter, order) in SizeCounter::ALL.iter().flat_map(|counter| NUMBERS.map(|order| (counter, order)))
    {
        let _ = figures.size(counter, order as usize);
        figures.add_size(counter, order as usize, u64::MAX);
    }
    for &gauge in Gauge::ALL {
        let _ = figures.gauge(gauge);
    }
    let _ = figures.faults_served();
}

/// Calls every method that reads the segment.
fn read(segment: &Segment) {
    let _ = (segment.check(), segment.scope().name());
    assert!(segment.page_cluster() <= PAGE_CLUSTER_MAX);
    let _ = segment.header.state.load(Relaxed) == GroupState::Ending as u32;
    let _ = Faulting::unpack(segment.header.faulting.load(Relaxed));
    let orders = segment.folio_orders();
    for (order, advised) in (0..=u8::MAX)
        .flat_map(|order| [Advised::Nothing, Advised::HugePages, Advised::NoHugePages].map(|by| (order, by)))
    {
        assert!(!orders.allows(order, advised) || usize::from(order) < ORDERS);
        assert!(usize::from(orders.largest_allowed(order, advised)) < ORDERS);
        assert!(usize::from(orders.nearest_allowed(order, ORDERS as u8 - 1, advised)) < ORDERS);
    }
    assert!(segment.devices().count() <= DEVICES_MAX);
    segment.devices.iter().for_each(read_device);
    assert!(segment.members().len() <= MEMBERS_MAX && segment.live_members().count() <= MEMBERS_MAX);
    assert!(NUMBERS.iter().all(|&id| segment.member(id).is_some() == ((id as usize) < MEMBERS_MAX)));
    let _ = (segment.charge_bytes(), segment.certain_charge_bytes(), segment.announced_bytes());
    let _ = segment.faults_served();
    read_groups(segment);
    segment.members.iter().for_each(|member| read_member(segment, member));
    // Each of these looks at all members once for each of its groups.
    for member in segment.members.iter().step_by(MEMBERS_MAX / 8) {
        assert!(segment.bounds(member).all(|bound: Bound| (bound.group as usize) < GROUPS_MAX));
        let _ = segment.tightest(member).is_reached();
    }
}

/// Calls every method that changes the segment by what stands in it, or by a number that somebody
/// read in it.
fn change(segment: &Segment) {
    for number in NUMBERS {
        segment.charge_outside(number, u64::MAX);
        segment.uncharge_outside(number, u64::MAX);
        if let Some(group) = segment.begin_group(number, 1) {
            segment.set_limit_of(group, u64::MAX);
        }
        segment.set_limit_of(number, 1 << 20);
        segment.end_group(number);
        segment.release(number);
        assert!(segment.assign(number).is_none_or(|id| (id as usize) < MEMBERS_MAX));
    }
}

#[test]
fn one_value_everywhere() {
    for value in SPECIAL {
        let segment = filled(|_| value);
        read(&segment);
        let segment = all_live(segment);
        read(&segment);
        change(&segment);
        read(&segment);
    }
}

#[test]
fn sums_of_wrong_figures_saturate() {
    let segment = all_live(filled(|_| u64::MAX));
    let sums = [
        segment.charge_bytes(),
        segment.certain_charge_bytes(),
        segment.announced_bytes(),
        segment.faults_served(),
        segment.charge_within(WHOLE),
    ];
    assert_eq!(sums, [u64::MAX; 5], "no sum begins at zero again");
}

/// A member with a wrong group number counts in the root, and its limits are the root's.
#[test]
fn a_number_that_names_no_group_is_the_roots() {
    let segment = filled(|_| 0);
    segment.header.limit_bytes.store(100, Relaxed);
    let [wrong, right] = [7, 8].map(|pid| segment.member(segment.assign(pid).unwrap()).unwrap());
    let group = segment.begin_group(WHOLE, 50).unwrap();
    right.set_group(group);
    for (member, charge) in [(wrong, 30), (right, 20)] {
        member.charge_bytes.store(charge, Relaxed);
    }
    for number in [GROUPS_MAX as u32, 1000, u32::MAX] {
        wrong.set_group(number);
        assert_eq!(wrong.group(), WHOLE);
        assert_eq!(segment.tightest(wrong), Bound { group: WHOLE, limit: 100, charge: 50 });
        assert_eq!(segment.bounds(wrong).count(), 1);
        assert_eq!((segment.least_limit(wrong), segment.least_limit(right)), (100, 50));
        assert_eq!((segment.charge_within(WHOLE), segment.charge_within(group)), (50, 20));
        assert_eq!((segment.charge_within(number), segment.limit_of(number)), (0, u64::MAX));
    }
}

/// Groups that are around each other end nowhere, and are followed no further than groups can be
/// nested.
#[test]
fn groups_in_a_circle_are_left_after_the_deepest_nesting() {
    let segment = filled(|_| 0);
    let first = segment.begin_group(WHOLE, 10).unwrap();
    let second = segment.begin_group(first, 10).unwrap();
    segment.end_group(first);
    // The freed number goes to a group within the one that it was around.
    assert_eq!(segment.begin_group(second, 10), Some(first));
    assert_eq!(segment.around(first).count(), DEPTH_MAX);
    assert!(segment.is_within(first, second) && segment.is_within(second, first));
    segment.charge_outside(first, 1);
    assert_eq!(segment.begin_group(second, 10), None, "too deep, as far as can be told");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn random_words_everywhere(seed in any::<u64>()) {
        let segment = filled(random(seed));
        read(&segment);
        let segment = all_live(segment);
        read(&segment);
        change(&segment);
        read(&segment);
    }
}
