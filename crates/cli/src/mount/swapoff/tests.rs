use super::*;

#[test]
fn names_are_what_they_were() {
    assert_eq!(name_in(b"/var/tmp\tfile\t1024\t0\t-1"), Some("/var/tmp".into()));
    assert_eq!(name_in(b"/a\\040b\\134\\303\\244\tfile"), Some("/a b\\\u{e4}".into()));
    assert_eq!(name_in(b"/odd\\9\t"), Some("/odd\\9".into()));
    assert_eq!(name_in(b""), None);
}
