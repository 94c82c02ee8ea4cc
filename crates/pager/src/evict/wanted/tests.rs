use super::*;
use crate::engine::Engine;
use crate::engine::pool::For;
use crate::test_memory::{decide, engine, engine_with_pool, skip_without_huge_page};
use crate::units::{BLOCK, BlockAddr};
use folioswap_group::segment::Segment;
use std::boxed::Box;
use std::vec::Vec;

const LIMIT: u64 = 1 << 30;

#[test]
fn for_huge_pages_that_are_asked_for_room_is_made_ahead_down_to_the_low_mark() {
    let Some(engine) = engine_with_pool(LIMIT) else { return };
    engine.member().evictable_bytes.store(LIMIT, Relaxed);
    let Ok(taken) = engine.take_huge_page(For::SwapIn) else {
        skip_without_huge_page();
        return;
    };
    engine.huge_page_has_moved(taken, BlockAddr::containing(taken.address));
    let mut evictor = Evictor::new(engine);
    let missing = engine.missing_huge_page_bytes();
    assert!(missing > 8 * BLOCK as u64 / 2);
    let marks = Watermarks::of(LIMIT);
    let mut at = |charge: u64| {
        decide(engine).set_device_bytes(charge);
        evictor.wanted()
    };
    assert_eq!(at(marks.high - missing), Wanted::Nothing);
    assert_eq!(at(marks.high - missing + 1), Wanted::Ahead);
    assert_eq!(at(marks.low - missing + 1), Wanted::Ahead, "once begun, down to the low mark");
    assert_eq!(at(marks.low - missing), Wanted::Nothing);
    assert_eq!(at(marks.low - missing + 1), Wanted::Nothing, "until it is beyond the high one again");
    // Other members have more, and may be idle.
    let other = make_live(engine, 3);
    other.evictable_bytes.store(LIMIT, Relaxed);
    let missing = engine.missing_huge_page_bytes();
    assert_eq!(at(marks.high - missing + 1), Wanted::Nothing);
    other.evictable_bytes.store(missing - 1, Relaxed);
    assert_eq!(at(marks.high - missing + 1), Wanted::Ahead);
    evictor.give_up_headroom();
    assert_eq!(evictor.wanted(), Wanted::Nothing, "not again at once where nothing was found");
}

/// Makes the member of this number live, without a change of any entry of the segment.
fn make_live(engine: &Engine, id: u32) -> &'static Member {
    // SAFETY: all-zero is a valid segment.
    let aside = unsafe { Box::<Segment>::new_zeroed().assume_init() };
    let writer = decide(engine);
    let seats = core::iter::from_fn(|| writer.assign(&aside, 7));
    let below: Vec<u32> = seats.take_while(|&seat| seat != id).collect();
    below.into_iter().for_each(|seat| writer.release(&aside, seat));
    engine.segment().member(id).expect("an entry")
}

/// Another member can write every word of the segment. Decisions are made of the words that are
/// wrong here, figures of members, and, though nobody but the group's owner can write those, of
/// their groups and the limit.
#[test]
fn wrong_words_in_the_segment_make_wrong_decisions_at_worst() {
    let engine = engine();
    let (group, writer) = (engine.group(), decide(engine));
    let others = [1, 2].map(|id| make_live(engine, id));
    let wrong = [0, 1, 64, 1000, u64::from(u32::MAX), i64::MAX as u64, i64::MIN as u64, u64::MAX];
    for value in wrong {
        for ((id, member), group) in (1..).zip(others).zip([value as u32, 0]) {
            writer.set_group(id, group);
            for bytes in [&member.charge_bytes, &member.evictable_bytes, &member.unfound_bytes] {
                bytes.store(value, Relaxed);
            }
            member.announced_bytes.store(value, Relaxed);
            member.figures.set(folioswap_group::counters::Gauge::MemUsedTotal, value);
        }
        for limit in wrong {
            writer.set_limit_bytes(limit);
            writer.set_device_bytes(value);
            writer.publish_census(value);
            assert_eq!(group.live_members().count(), 2);
            for (own_group, engaged) in wrong.map(|group| group as u32).into_iter().zip([0, 1].repeat(4)) {
                writer.set_group(0, own_group);
                engine.mappings.engaged.store(engaged, Relaxed);
                let bound = engine.bound();
                let _ =
                    (engine.headroom(), engine.ask_for_huge_page_and(1), engine.missing_huge_page_bytes());
                let _ = (engine.store_exceeds(8), engine.stored_by(bound.group), engine.least_limit());
                let mut evictor = Evictor::new(engine);
                let _ = (evictor.wanted(), Watermarks::of(bound.limit));
                let _ = (evictor.demote_excess(), engine.is_at_limit());
            }
        }
    }
}
