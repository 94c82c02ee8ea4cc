use super::*;

#[test]
fn sizes_and_parts_are_read() {
    assert_eq!(parse("512M"), Ok(MemoryArgument::Bytes(512 << 20)));
    assert_eq!(parse("50%"), Ok(MemoryArgument::Percent(50.0)));
    assert_eq!(parse(" 12.5 % "), Ok(MemoryArgument::Percent(12.5)));
    for text in ["%", "0%", "-5%", "101%", "nan%", "inf%", "x%", "50%%"] {
        assert_eq!(parse(text), Err(MemoryError::Percent), "{text}");
    }
    assert_eq!(parse("1M"), Err(MemoryError::Size(SizeError::TooSmall)));
}
