//! Locations: packing is symmetrical, the LOCK bit is independent of the place, cells keep to the
//! protocol.

use folioswap_devices::{
    Checksum, Codec, FileSlot, Handle, KeyNumber, Location, LocationCell, Place, StoredLen,
};
use proptest::prelude::*;

fn any_codec() -> impl Strategy<Value = Codec> {
    prop_oneof![Just(Codec::Lz4), Just(Codec::Lz4Settled), Just(Codec::Zstd), Just(Codec::BaseDelta)]
}

fn any_place() -> impl Strategy<Value = Place> {
    prop_oneof![
        Just(Place::None),
        Just(Place::Zero),
        any::<u64>().prop_map(|pattern| Place::SameFilled { pattern }),
        (0..1u64 << Handle::BITS, 1..=4096usize, any_codec(), any::<u32>()).prop_map(
            |(handle, len, codec, check)| Place::Zram {
                handle: Handle::from_raw(handle).unwrap(),
                len: StoredLen::new(len).unwrap(),
                codec,
                checksum: Checksum::from_raw(check),
            }
        ),
        (0..1u64 << FileSlot::BITS, 0..1u16 << KeyNumber::BITS, any::<u32>()).prop_map(
            |(slot, key, check)| Place::File {
                slot: FileSlot::new(slot).unwrap(),
                key: KeyNumber::new(key).unwrap(),
                checksum: Checksum::from_raw(check),
            }
        ),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 20 } else { 5000 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_place_survives_packing_locked_or_not(place in any_place()) {
        let (location, check) = place.pack();
        prop_assert!(!location.is_locked());
        prop_assert!(location.locked().is_locked());
        prop_assert_eq!(location.locked().unlocked(), location);
        prop_assert_eq!(Place::unpack(location, check), Some(place));
        prop_assert_eq!(Place::unpack(location.locked(), check), Some(place));
    }

    #[test]
    fn a_word_that_unpacks_packs_to_itself(raw in any::<u64>(), check in any::<u32>()) {
        let location = Location::from_raw(raw);
        if let Some(place) = Place::unpack(location, check) {
            prop_assert_eq!(place.pack(), (location.unlocked(), check));
        }
    }
}

#[test]
fn numbers_that_do_not_fit_are_no_places() {
    assert_eq!(Handle::from_raw(1 << Handle::BITS), None);
    assert_eq!(FileSlot::new(1 << FileSlot::BITS), None);
    assert_eq!(KeyNumber::new(1 << KeyNumber::BITS), None);
    assert_eq!((StoredLen::new(0), StoredLen::new(4097)), (None, None));
    assert_eq!(Location::default(), Location::NONE);
}

#[test]
fn a_locked_cell_is_not_relocated_and_not_locked_twice() {
    let old = Location::zram(Handle::from_raw(5).unwrap(), StoredLen::new(9).unwrap(), Codec::Lz4);
    let new = Location::zram(Handle::from_raw(6).unwrap(), StoredLen::new(9).unwrap(), Codec::Lz4);
    let cell = LocationCell::new(old);
    assert_eq!(cell.try_lock(), Some(old));
    assert_eq!(cell.try_lock(), None);
    assert!(!cell.relocate(old, new));
    cell.unlock_with(old);
    assert!(cell.relocate(old, new));
    assert!(!cell.relocate(old, new));
    assert_eq!(cell.get(), new);
}

#[test]
fn an_object_moves_only_where_it_is_named_and_the_rest_of_the_word_stays() {
    let [here, there, elsewhere] = [5, 6, 7].map(|raw| Handle::from_raw(raw).unwrap());
    let len = StoredLen::new(9).unwrap();
    for codec in [Codec::Lz4, Codec::Lz4Settled, Codec::Zstd, Codec::BaseDelta] {
        let cell = LocationCell::new(Location::zram(here, len, codec));
        assert!(!cell.relocate_object(there, elsewhere));
        let held = cell.try_lock().unwrap();
        assert!(!cell.relocate_object(here, there));
        cell.unlock_with(held);
        assert!(cell.relocate_object(here, there));
        assert_eq!(cell.get(), Location::zram(there, len, codec));
    }
    // The same number is a slot here.
    let cell = LocationCell::new(Location::file(FileSlot::new(5).unwrap(), KeyNumber::NONE));
    assert!(!cell.relocate_object(here, there));
}

#[test]
fn a_codec_that_is_none_is_no_place() {
    let word = Location::zram(Handle::from_raw(5).unwrap(), StoredLen::new(9).unwrap(), Codec::Lz4).raw();
    for codec in 4..=u8::MAX {
        assert_eq!(Place::unpack(Location::from_raw(word | u64::from(codec) << 56), 0), None, "{codec}");
    }
}
