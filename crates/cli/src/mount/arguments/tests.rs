use super::*;

#[test]
fn modes_are_octal() {
    assert_eq!(parse_mode("1777"), Ok(0o1777));
    assert_eq!(parse_mode("0"), Ok(0));
    for text in ["", "8", "rwx", "17777", "-1"] {
        assert!(parse_mode(text).is_err(), "{text:?}");
    }
}
