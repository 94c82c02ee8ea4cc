use super::*;
use crate::engine::pool::For;
use crate::test_memory::{engine, engine_with_pool, skip_without_huge_page};
use crate::units::{BLOCK, BlockAddr};
use folioswap_group::segment::MemberState;

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
        engine.segment().header.device_bytes.store(charge, Relaxed);
        evictor.wanted()
    };
    assert_eq!(at(marks.high - missing), Wanted::Nothing);
    assert_eq!(at(marks.high - missing + 1), Wanted::Ahead);
    assert_eq!(at(marks.low - missing + 1), Wanted::Ahead, "once begun, down to the low mark");
    assert_eq!(at(marks.low - missing), Wanted::Nothing);
    assert_eq!(at(marks.low - missing + 1), Wanted::Nothing, "until it is beyond the high one again");
    // Other members have more, and may be idle.
    engine.segment().header.members_high.store(4, Relaxed);
    let other = &engine.segment().members()[3];
    other.state.store(MemberState::Live as u32, Relaxed);
    other.evictable_bytes.store(LIMIT, Relaxed);
    let missing = engine.missing_huge_page_bytes();
    assert_eq!(at(marks.high - missing + 1), Wanted::Nothing);
    other.evictable_bytes.store(missing - 1, Relaxed);
    assert_eq!(at(marks.high - missing + 1), Wanted::Ahead);
    evictor.give_up_headroom();
    assert_eq!(evictor.wanted(), Wanted::Nothing, "not again at once where nothing was found");
}

/// Another member can write every word of the segment. Decisions are made of the words that are
/// wrong here: figures of members, their groups, and the limit.
#[test]
fn wrong_words_in_the_segment_make_wrong_decisions_at_worst() {
    let engine = engine();
    let segment = engine.segment();
    segment.header.members_high.store(u32::MAX, Relaxed);
    let others = &segment.members()[1..3];
    let wrong = [0, 1, 64, 1000, u64::from(u32::MAX), i64::MAX as u64, i64::MIN as u64, u64::MAX];
    for value in wrong {
        for (member, group) in others.iter().zip([value as u32, 0]) {
            member.state.store(MemberState::Live as u32, Relaxed);
            member.set_group(group);
            for bytes in [&member.charge_bytes, &member.evictable_bytes, &member.unfound_bytes] {
                bytes.store(value, Relaxed);
            }
            member.announced_bytes.store(value, Relaxed);
            member.figures.set(folioswap_group::counters::Gauge::MemUsedTotal, value);
        }
        for limit in wrong {
            segment.header.limit_bytes.store(limit, Relaxed);
            segment.header.device_bytes.store(value, Relaxed);
            segment.header.unmanaged_bytes.store(value, Relaxed);
            for (own_group, engaged) in wrong.map(|group| group as u32).into_iter().zip([0, 1].repeat(4)) {
                engine.member().set_group(own_group);
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
