use super::*;

#[test]
fn filled_pages_are_found_and_restored() {
    for pattern in [0, 1, u64::MAX, 0x0102_0304_0506_0708] {
        let mut page = [0xa5; PAGE_SIZE];
        fill(&mut page, pattern);
        assert_eq!(same_filled(&page), Some(pattern));
    }
}

#[test]
fn one_changed_byte_anywhere_spoils_it() {
    let mut page = [0; PAGE_SIZE];
    fill(&mut page, 0x1122_3344_5566_7788);
    for at in 0..PAGE_SIZE {
        page[at] ^= 1;
        assert_eq!(same_filled(&page), None, "byte {at}");
        page[at] ^= 1;
    }
}

#[test]
fn other_pages_are_refused_with_what_mends_it() {
    assert_eq!(check_page_size(4096), Ok(()));
    for (bytes, told) in [(16 << 10, "have 16 KiB"), (64 << 10, "have 64 KiB")] {
        let refusal = check_page_size(bytes).unwrap_err().to_string();
        assert!(refusal.contains(told) && refusal.contains("boot a kernel"), "{refusal}");
    }
}
