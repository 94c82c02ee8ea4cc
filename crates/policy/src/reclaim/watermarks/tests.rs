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

/// The limit stands in memory that members can write, so it may be any number.
#[test]
fn watermarks_do_not_wrap_for_a_wrong_limit() {
    for limit in
        [0, 1, 7, 4095, u64::from(u32::MAX), i64::MAX as u64, i64::MIN as u64, u64::MAX - 1, u64::MAX]
    {
        let marks = Watermarks::of(limit);
        assert!(
            marks.engage <= marks.limit && marks.low <= marks.high && marks.high <= marks.limit,
            "{marks:?}"
        );
        assert!(marks.limit <= marks.brink, "{marks:?}");
    }
}
