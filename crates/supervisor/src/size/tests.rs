use super::*;

#[test]
fn limits_are_binary() {
    assert_eq!(parse_limit("512M"), Ok(512 << 20));
    assert_eq!(parse_limit("1.5G"), Ok(1536 << 20));
    assert_eq!(parse_limit("1GiB"), Ok(1 << 30));
    assert_eq!(parse_limit("1gb"), Ok(1 << 30));
    assert_eq!(parse_limit("16777216"), Ok(16 << 20));
}

#[test]
fn absurd_limits_are_told_apart() {
    for text in ["", "abc", "12X", "-5M", "M", "1..5G", "nan"] {
        assert_eq!(parse_limit(text), Err(SizeError::Unreadable), "{text:?}");
    }
    for text in ["0", "1", "512", "7M"] {
        assert_eq!(parse_limit(text), Err(SizeError::TooSmall), "{text:?}");
    }
    assert_eq!(parse_limit("99999999999999999999999"), Err(SizeError::Overflow));
    assert_eq!(parse_swap_max("0"), Ok(0));
}

#[test]
fn sizes_read_well() {
    assert_eq!(show(0), "0 B");
    assert_eq!(show(512 << 20), "512.0 MiB");
    assert_eq!(suggest((100 << 20) + 1), "121M");
}

#[test]
fn sizes_of_a_column_are_short() {
    let shown = [0, 512, 40 << 20, (1 << 20) - 1, 1 << 30, u64::MAX].map(short);
    assert_eq!(shown, ["0", "0.5K", "40.0M", "1.0M", "1.0G", "16.0E"]);
}

#[test]
fn a_rough_size_is_rounded_up_and_can_be_given_again() {
    let cases = [(1, "1M"), (64 << 20, "64M"), (137 << 20, "140M"), (1234 << 20, "1300M"), (11 << 30, "11G")];
    for (bytes, text) in cases {
        assert_eq!(about(bytes), text);
        assert!(parse(text).expect("a size") >= bytes);
    }
}
