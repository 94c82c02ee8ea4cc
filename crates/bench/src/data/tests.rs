use super::*;

#[test]
fn damage_is_found_and_named() {
    let mut page = [0u8; PAGE];
    for kind in [Kind::Two, Kind::Three, Kind::Incompressible, Kind::Same, Kind::Mixed] {
        fill(&mut page, kind, 7, 1, 35);
        check(&page, kind, 7, 1, 35).expect("intact");
        let others = [(7, 1, 36), (7, 2, 35), (8, 1, 35)];
        for (seed, version, number) in others {
            assert!(check(&page, kind, seed, version, number).is_err());
        }
        page[4000] ^= 1;
        assert!(check(&page, kind, 7, 1, 35).is_err());
    }
    assert!(check(&[0; PAGE], Kind::Two, 7, 1, 36).expect_err("zero").contains("all zero"));
    fill(&mut page, Kind::Two, 7, 0, 40);
    let first = first_word(Kind::Two, 7, 0, 40);
    check_first(first, &page, Kind::Two, 7, 0, 40).expect("intact");
    let passing = check_first(first ^ 1, &page, Kind::Two, 7, 0, 40).expect_err("seen once");
    assert!(passing.contains("right now"), "{passing}");
    assert!(check_first(first, &page, Kind::Two, 7, 1, 40).is_err());
    assert_eq!(sum(&page[..16]), first.wrapping_add(u64::from_ne_bytes(page[8..16].try_into().expect("8"))));
    assert!(check(&page, Kind::Two, 7, 1, 36).expect_err("other").contains("page 40 in version 0"));
}
