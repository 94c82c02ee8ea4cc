extern crate std;
use super::*;
use crate::segment::Segment;
use std::boxed::Box;
use std::vec::Vec;

/// A group with a limit of 100 bytes.
struct Memory {
    decisions: Box<Decisions>,
    segment: Box<Segment>,
}

impl Memory {
    fn new() -> Self {
        // SAFETY: all-zero is a valid state of both.
        let memory = unsafe {
            Memory { decisions: Box::new_zeroed().assume_init(), segment: Box::new_zeroed().assume_init() }
        };
        memory.writer().set_limit_bytes(100);
        memory
    }

    fn group(&self) -> Group<'_> {
        Group { decisions: &self.decisions, segment: &self.segment }
    }

    fn writer(&self) -> DecisionsWriter<'_> {
        // SAFETY: memory of the test's own.
        unsafe { DecisionsWriter::new(&self.decisions) }
    }

    /// A new member with this charge.
    fn member(&self, group: u32, charge: u64) -> (&Seat, &Member) {
        let id = self.writer().assign(&self.segment, 1).unwrap();
        self.writer().set_group(id, group);
        let member = self.segment.member(id).unwrap();
        member.charge_bytes.store(charge, Relaxed);
        (self.decisions.seat(id).unwrap(), member)
    }
}

#[test]
fn what_a_member_takes_counts_in_all_groups_around_it() {
    let memory = Memory::new();
    let (group, writer) = (memory.group(), memory.writer());
    let outer = writer.begin_group(WHOLE, 60).unwrap();
    let inner = writer.begin_group(outer, 20).unwrap();
    let beside = writer.begin_group(WHOLE, 30).unwrap();
    let members = [(WHOLE, 1), (outer, 10), (inner, 15), (beside, 5)];
    let members = members.map(|(group, charge)| memory.member(group, charge));
    let charges = || [WHOLE, outer, inner, beside].map(|number| group.charge_within(number));
    assert_eq!(charges(), [31, 25, 15, 5]);
    writer.charge_outside(inner, 4);
    writer.add_unmanaged(4);
    assert_eq!(charges(), [35, 29, 19, 5]);
    writer.uncharge_outside(inner, 4);
    assert_eq!(group.charge_within(outer), 25);
    let decisions = group.decisions;
    assert!(decisions.is_within(inner, outer) && decisions.is_within(inner, WHOLE));
    assert!(!decisions.is_within(outer, inner) && !decisions.is_within(beside, outer));
    assert_eq!(group.members_within(outer).count(), 2);
    assert_eq!(members[0].0.group(), WHOLE);
}

#[test]
fn the_limit_that_leaves_the_least_room_holds() {
    let memory = Memory::new();
    let (group, writer) = (memory.group(), memory.writer());
    let outer = writer.begin_group(WHOLE, 60).unwrap();
    let inner = writer.begin_group(outer, 20).unwrap();
    let [whole, in_outer, in_inner] =
        [(WHOLE, 0), (outer, 0), (inner, 15)].map(|(group, charge)| memory.member(group, charge));
    assert_eq!(group.tightest(in_inner.0), Bound { group: inner, limit: 20, charge: 15 });
    in_outer.1.charge_bytes.store(42, Relaxed);
    assert_eq!(group.tightest(in_inner.0), Bound { group: outer, limit: 60, charge: 57 });
    assert_eq!(group.tightest(in_outer.0).group, outer);
    whole.1.charge_bytes.store(50, Relaxed);
    assert_eq!(group.tightest(in_inner.0), Bound { group: WHOLE, limit: 100, charge: 107 });
    assert!(group.tightest(whole.0).is_reached());
    let least = [whole, in_outer, in_inner].map(|(seat, _)| group.decisions.least_limit(seat));
    assert_eq!(least, [100, 60, 20]);
}

#[test]
fn places_are_used_again_and_have_an_end() {
    let memory = Memory::new();
    let writer = memory.writer();
    let all: Vec<_> = (1..GROUPS_MAX).map(|_| writer.begin_group(WHOLE, 1).unwrap()).collect();
    assert_eq!(writer.begin_group(WHOLE, 1), None);
    writer.end_group(all[7]);
    assert_eq!(writer.begin_group(WHOLE, 1), Some(all[7]));
    let memory = Memory::new();
    let (decisions, writer) = (&memory.decisions, memory.writer());
    let mut deepest = WHOLE;
    for _ in 1..DEPTH_MAX {
        deepest = writer.begin_group(deepest, 1).unwrap();
    }
    assert_eq!(writer.begin_group(deepest, 1), None, "too deep");
    assert_eq!(decisions.around(deepest).count(), DEPTH_MAX);
    assert_eq!(decisions.around(deepest).last(), Some(WHOLE));
}
