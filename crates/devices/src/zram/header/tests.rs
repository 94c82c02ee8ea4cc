use super::*;

#[test]
fn headers_survive_packing() {
    let owner = Owner::new(OWNER_MASK).unwrap();
    for header in [
        Header::Live { owner, len: StoredLen::UNCOMPRESSED },
        Header::Live { owner: Owner::new(0).unwrap(), len: StoredLen::new(1).unwrap() },
        Header::Free { next: None },
        Header::Free { next: Some(0) },
        Header::Free { next: Some(u16::MAX - 1) },
    ] {
        assert_eq!(Header::unpack(header.pack()), Some(header));
    }
    assert_eq!(Header::unpack(LIVE | 1 << 60), None);
}
