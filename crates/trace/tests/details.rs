//! Version 2: headers that state their layout, and details that come back.

use folioswap_trace::*;
use proptest::prelude::*;

fn details() -> impl Strategy<Value = Details> {
    (any::<u16>(), any::<u32>(), any::<u64>(), 0usize..Cause::ALL.len())
        .prop_map(|(group, mask, folio, cause)| Details { group, mask, folio, cause: Cause::ALL[cause] })
}

proptest! {
    #[test]
    fn details_come_back(details in details()) {
        prop_assert_eq!(Details::decode(&details.encode()), Ok(details));
    }

    #[test]
    fn any_bytes_are_refused_or_mean_themselves(bytes in any::<[u8; DETAILS_BYTES]>()) {
        if let Ok(details) = Details::decode(&bytes) {
            prop_assert_eq!(details.encode(), bytes);
        }
    }
}

#[test]
fn a_header_says_which_layout_follows() {
    let header = Header { tick_ns: 7, cpus: 9 };
    for (layout, bytes) in [(Layout::Plain, 16), (Layout::Detailed, 32)] {
        assert_eq!(layout.record_bytes(), bytes);
        assert_eq!(Header::decode_any(&header.encode_as(layout)), Ok((header, layout)));
    }
    // A reader of plain records refuses the other layout by its version.
    assert_eq!(Header::decode(&header.encode_as(Layout::Detailed)), Err(HeaderError::Version(2)));
    let mut torn = header.encode_as(Layout::Detailed);
    torn[16] = 16;
    assert_eq!(Header::decode_any(&torn), Err(HeaderError::Invalid));
}

#[test]
fn an_unknown_cause_and_reserved_bits_are_refused() {
    let mut bytes = Details::default().encode();
    bytes[0] = 4;
    assert_eq!(Details::decode(&bytes), Err(BadDetails));
    bytes[0] = 0;
    bytes[1] = 1;
    assert_eq!(Details::decode(&bytes), Err(BadDetails));
}
