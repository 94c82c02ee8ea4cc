use super::*;
use proptest::prelude::*;

fn sealed(mut page: Page) -> Page {
    let checksum = xxh3_64(&page[..CHECKSUM_AT]);
    page[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
    page
}

const HEADER: Header = Header { uuid: Uuid::from_u128(0x1234_5678_9abc_def0), size: 16 << 30 };

#[test]
fn what_is_written_is_read_and_nothing_else() {
    let page = HEADER.to_page();
    assert_eq!(Header::from_page(&page), Ok(HEADER));
    assert_eq!(Header::from_page(&[0; PAGE_SIZE]), Err(HeaderError::Foreign));
    let changed = |at: usize, to: u8| {
        let mut changed = page;
        changed[at] = to;
        Header::from_page(&sealed(changed))
    };
    assert_eq!(changed(8, 2), Err(HeaderError::Version(2)));
    assert_eq!(changed(13, 0x20), Err(HeaderError::Impossible), "another page size");
    assert_eq!(changed(23, 0x80), Err(HeaderError::Impossible), "a size beyond everything");
    assert_eq!(changed(4000, 1), Err(HeaderError::Impossible), "a later version's field");
    let small = Header { size: SIZE_MIN - 1, ..HEADER };
    assert_eq!(Header::from_page(&small.to_page()), Err(HeaderError::Impossible));
}

#[test]
fn every_flipped_bit_is_found() {
    let page = HEADER.to_page();
    for bit in 0..PAGE_SIZE * 8 {
        let mut damaged = page;
        damaged[bit / 8] ^= 1 << (bit % 8);
        let expected = if bit < 64 { HeaderError::Foreign } else { HeaderError::Damaged };
        assert_eq!(Header::from_page(&damaged), Err(expected), "bit {bit}");
    }
}

proptest! {
    /// The short form of `fuzz/fuzz_targets/swap_header.rs`.
    #[test]
    fn whatever_stands_there_is_read_or_refused(
        start in proptest::collection::vec(any::<u8>(), 0..64), fill in any::<u8>(), magic: bool, seal: bool
    ) {
        let mut page = [fill; PAGE_SIZE];
        page[..start.len()].copy_from_slice(&start);
        if magic {
            page[..8].copy_from_slice(MAGIC);
            page[40..CHECKSUM_AT].fill(0);
        }
        if seal {
            page = sealed(page);
        }
        if let Ok(header) = Header::from_page(&page) {
            prop_assert_eq!(header.to_page(), page, "what is accepted is exactly what would be written");
        }
    }
}
