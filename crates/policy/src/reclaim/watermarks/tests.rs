use super::*;

#[test]
fn watermarks_ascend_for_every_limit() {
    for limit in [8u64 << 20, 60 << 20, 512 << 20, 64 << 30] {
        let marks = Watermarks::of(limit);
        assert!(
            marks.engage < marks.low
                && marks.low < marks.high
                && marks.high < marks.limit
                && marks.limit < marks.brink,
            "{marks:?}"
        );
    }
}
