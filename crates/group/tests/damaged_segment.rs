//! A group in which any word may be wrong. Every member can write all of the segment, so whatever
//! stands there, each method that reads it returns something in range and panics nowhere. Nobody
//! but their owner can write the decisions; their methods bound what they read all the same.

use folioswap_group::counters::{Counter, Gauge, ORDERS, SizeCounter};
use folioswap_group::decisions::{CLUSTERS_MAX, Decisions, DecisionsWriter, PAGE_CLUSTER_MAX, Scope};
use folioswap_group::devices::{DEVICES_MAX, DeviceEntry};
use folioswap_group::folio_orders::Advised;
use folioswap_group::group::Group;
use folioswap_group::nested::{Bound, DEPTH_MAX, GROUPS_MAX, WHOLE};
use folioswap_group::seat::Seat;
use folioswap_group::segment::{Faulting, MEMBERS_MAX, Member, Segment};
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

/// Something of atomics whose words are these, by index.
///
/// # Safety
/// `T` consists of atomics, and its size is a multiple of a word's.
unsafe fn filled<T>(word: &mut impl FnMut(usize) -> u64) -> Box<T> {
    let mut memory = Box::<T>::new_uninit();
    let words = memory.as_mut_ptr().cast::<u64>();
    for index in 0..size_of::<T>() / size_of::<u64>() {
        // SAFETY: within the memory, which is aligned to a word; nothing else refers to it.
        unsafe { words.add(index).write(word(index)) };
    }
    // SAFETY: every word is written, and any bytes are valid for atomics.
    unsafe { memory.assume_init() }
}

/// The two memories of a group.
struct Memory {
    decisions: Box<Decisions>,
    segment: Box<Segment>,
}

impl Memory {
    /// Memory whose words are these.
    fn filled(mut word: impl FnMut(usize) -> u64) -> Self {
        // SAFETY: both consist of atomics and are aligned to 64 bytes.
        unsafe { Memory { decisions: filled(&mut word), segment: filled(&mut word) } }
    }

    fn group(&self) -> Group<'_> {
        Group { decisions: &self.decisions, segment: &self.segment }
    }

    fn writer(&self) -> DecisionsWriter<'_> {
        // SAFETY: memory of the test's own.
        unsafe { DecisionsWriter::new(&self.decisions) }
    }

    /// Takes all seats, without a change of what their members publish, and puts the members into
    /// groups of these numbers.
    fn make_all_live(&self, mut group: impl FnMut(usize) -> u64) {
        let (writer, aside) = (self.writer(), Memory::filled(|_| 0).segment);
        // The last one is taken anew, so that no seat is above those that may be taken.
        writer.release(&aside, MEMBERS_MAX as u32 - 1);
        while writer.assign(&aside, 1).is_some() {}
        assert_eq!(self.group().live_members().count(), MEMBERS_MAX);
        (0..MEMBERS_MAX).for_each(|id| writer.set_group(id as u32, group(id) as u32));
    }
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
    let _ = (entry.clusters_used(), entry.errors());
}

fn read_groups(group: Group<'_>) {
    let decisions = group.decisions;
    for number in NUMBERS {
        let around: Vec<u32> = decisions.around(number).collect();
        assert!((1..=DEPTH_MAX).contains(&around.len()));
        assert!(around.iter().all(|number| (*number as usize) < GROUPS_MAX));
        let _ = (group.charge_within(number), group.certain_charge_within(number));
        let _ = (decisions.limit_of(number), group.members_within(number).count());
        for outer in NUMBERS {
            let _ = decisions.is_within(number, outer);
        }
    }
}

fn read_member(group: Group<'_>, seat: &Seat, member: &Member) {
    assert!((seat.group() as usize) < GROUPS_MAX);
    let _ = (seat.is_live(), seat.pid(), member.charge(), group.decisions.least_limit(seat));
    let (sharing, header) = (&member.sharing, &group.segment.header);
    let before = sharing.before_measuring(header);
    let _ = (sharing.discount(), sharing.ended_bytes(), sharing.stale_bytes(header));
    sharing.publish(before, u64::MAX);
    sharing.end(header, u64::MAX);
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

/// Calls every method that reads the segment or the decisions.
fn read(memory: &Memory) {
    let (group, decisions, segment) = (memory.group(), &*memory.decisions, &*memory.segment);
    let _ = (decisions.check(), decisions.scope().name(), decisions.state(), decisions.supervisor_pid());
    let _ = (decisions.limit_bytes(), decisions.unmanaged_bytes(), decisions.device_bytes());
    let _ = (decisions.census_walks(), decisions.wants_validation(), decisions.devices_changed());
    assert!(decisions.page_cluster() <= PAGE_CLUSTER_MAX);
    let _ = Faulting::unpack(segment.header.faulting.load(Relaxed));
    let orders = decisions.folio_orders();
    for (order, advised) in (0..=u8::MAX)
        .flat_map(|order| [Advised::Nothing, Advised::HugePages, Advised::NoHugePages].map(|by| (order, by)))
    {
        assert!(!orders.allows(order, advised) || usize::from(order) < ORDERS);
        assert!(usize::from(orders.largest_allowed(order, advised)) < ORDERS);
        assert!(usize::from(orders.nearest_allowed(order, ORDERS as u8 - 1, advised)) < ORDERS);
    }
    assert!(decisions.devices().count() <= DEVICES_MAX);
    decisions.devices.iter().for_each(read_device);
    assert!(decisions.seats_in_use().len() <= MEMBERS_MAX && group.live_members().count() <= MEMBERS_MAX);
    for id in NUMBERS {
        assert_eq!(segment.member(id).is_some(), (id as usize) < MEMBERS_MAX);
        assert_eq!(decisions.seat(id).is_some(), (id as usize) < MEMBERS_MAX);
        assert!((id as usize) < CLUSTERS_MAX || decisions.owners_of(id) == 0);
    }
    let _ = (group.charge_bytes(), group.certain_charge_bytes(), group.announced_bytes());
    let _ = group.faults_served();
    read_groups(group);
    for (seat, member) in decisions.seats.iter().zip(&segment.members) {
        read_member(group, seat, member);
    }
    // Each of these looks at all members once for each of its groups.
    for seat in decisions.seats.iter().step_by(MEMBERS_MAX / 8) {
        assert!(group.bounds(seat).all(|bound: Bound| (bound.group as usize) < GROUPS_MAX));
        let _ = group.tightest(seat).is_reached();
    }
}

/// Calls every method that changes something by what stands there, or by a number that somebody
/// read there.
fn change(memory: &Memory) {
    let (writer, segment) = (memory.writer(), &*memory.segment);
    for number in NUMBERS {
        writer.charge_outside(number, u64::MAX);
        writer.uncharge_outside(number, u64::MAX);
        if let Some(group) = writer.begin_group(number, 1) {
            writer.set_limit_of(group, u64::MAX);
        }
        writer.set_limit_of(number, 1 << 20);
        writer.set_group(number, number);
        writer.end_group(number);
        writer.release(segment, number);
        assert!(writer.assign(segment, number).is_none_or(|id| (id as usize) < MEMBERS_MAX));
    }
}

#[test]
fn one_value_everywhere() {
    for value in SPECIAL {
        let memory = Memory::filled(|_| value);
        read(&memory);
        memory.make_all_live(|_| value);
        read(&memory);
        change(&memory);
        read(&memory);
    }
}

#[test]
fn sums_of_wrong_figures_saturate() {
    let memory = Memory::filled(|_| u64::MAX);
    memory.make_all_live(|_| u64::MAX);
    let group = memory.group();
    let sums = [
        group.charge_bytes(),
        group.certain_charge_bytes(),
        group.announced_bytes(),
        group.faults_served(),
        group.charge_within(WHOLE),
    ];
    assert_eq!(sums, [u64::MAX; 5], "no sum begins at zero again");
}

/// A member with a wrong group number counts in the root, and its limits are the root's.
#[test]
fn a_number_that_names_no_group_is_the_roots() {
    let memory = Memory::filled(|_| 0);
    let (group, decisions, writer) = (memory.group(), &*memory.decisions, memory.writer());
    writer.set_limit_bytes(100);
    let [wrong, right] = [7, 8].map(|pid| writer.assign(&memory.segment, pid).unwrap());
    let nested = writer.begin_group(WHOLE, 50).unwrap();
    writer.set_group(right, nested);
    for (id, charge) in [(wrong, 30), (right, 20)] {
        memory.segment.member(id).unwrap().charge_bytes.store(charge, Relaxed);
    }
    let [wrong_seat, right_seat] = [wrong, right].map(|id| decisions.seat(id).unwrap());
    for number in [GROUPS_MAX as u32, 1000, u32::MAX] {
        writer.set_group(wrong, number);
        assert_eq!(wrong_seat.group(), WHOLE);
        assert_eq!(group.tightest(wrong_seat), Bound { group: WHOLE, limit: 100, charge: 50 });
        assert_eq!(group.bounds(wrong_seat).count(), 1);
        assert_eq!((decisions.least_limit(wrong_seat), decisions.least_limit(right_seat)), (100, 50));
        assert_eq!((group.charge_within(WHOLE), group.charge_within(nested)), (50, 20));
        assert_eq!((group.charge_within(number), decisions.limit_of(number)), (0, u64::MAX));
    }
}

/// Groups that are around each other end nowhere, and are followed no further than groups can be
/// nested.
#[test]
fn groups_in_a_circle_are_left_after_the_deepest_nesting() {
    let memory = Memory::filled(|_| 0);
    let (decisions, writer) = (&memory.decisions, memory.writer());
    let first = writer.begin_group(WHOLE, 10).unwrap();
    let second = writer.begin_group(first, 10).unwrap();
    writer.end_group(first);
    // The freed number goes to a group within the one that it was around.
    assert_eq!(writer.begin_group(second, 10), Some(first));
    assert_eq!(decisions.around(first).count(), DEPTH_MAX);
    assert!(decisions.is_within(first, second) && decisions.is_within(second, first));
    writer.charge_outside(first, 1);
    assert_eq!(writer.begin_group(second, 10), None, "too deep, as far as can be told");
}

/// Whatever members write into the segment, the decisions stay, and so does each limit.
#[test]
fn no_word_of_the_segment_is_a_decision() {
    for value in SPECIAL {
        let memory = Memory::filled(|_| 0);
        let writer = memory.writer();
        writer.initialise(7, 1 << 20, Scope::Total, []);
        let id = writer.assign(&memory.segment, 8).unwrap();
        let Memory { decisions, segment: wrong } = Memory::filled(|_| value);
        drop(decisions);
        let group = Group { decisions: &memory.decisions, segment: &wrong };
        let seat = group.decisions.seat(id).unwrap();
        assert_eq!((group.tightest(seat).limit, group.decisions.least_limit(seat)), (1 << 20, 1 << 20));
        assert_eq!((group.live_members().count(), seat.pid(), seat.group()), (1, 8, WHOLE));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn random_words_everywhere(seed in any::<u64>()) {
        let memory = Memory::filled(random(seed));
        read(&memory);
        memory.make_all_live(random(!seed));
        read(&memory);
        change(&memory);
        read(&memory);
    }
}
