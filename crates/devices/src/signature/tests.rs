use super::*;

#[test]
fn each_mark_is_named_where_it_belongs_and_nowhere_else() {
    for known in SIGNATURES {
        let mut start = vec![0; START_BYTES];
        assert_eq!(name(&start), None);
        start[known.at..known.at + known.bytes.len()].copy_from_slice(known.bytes);
        assert_eq!(name(&start), Some(known.name));
        assert!(!is_blank(&start, &[]));
        assert_eq!(name(&start[..known.at]), None, "a short file");
    }
    for page in SWAP_PAGES {
        let mut start = vec![0; START_BYTES];
        start[page - 10..page].copy_from_slice(b"SWAPSPACE2");
        assert_eq!(name(&start), Some("swap space of the kernel (mkswap(8))"));
    }
}

#[test]
fn blank_is_nothing_at_both_ends() {
    assert!(is_blank(&[0; 100], &[0; 100]));
    assert!(!is_blank(&[0; 100], &[0, 1]));
    assert!(is_blank(&[], &[]));
}
