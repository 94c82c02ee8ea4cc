use super::*;
use crate::engine::pool::For;
use crate::test_memory::{engine_with_pool, skip_without_huge_page};
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
