use super::*;

#[test]
fn how_a_swapoff_ended_fits_a_message() {
    for end in [
        SwapoffEnd::Done { lost: 7 },
        SwapoffEnd::NoDevice,
        SwapoffEnd::NotPermitted,
        SwapoffEnd::Busy,
        SwapoffEnd::Store,
        SwapoffEnd::NoOther,
        SwapoffEnd::NoRoom { used: 1 << 40, free: 3 },
        SwapoffEnd::Stalled { left: u64::MAX, process: u32::MAX },
    ] {
        assert_eq!(SwapoffEnd::unpack(end.pack()), Some(end));
    }
    assert_eq!(SwapoffEnd::unpack([8, 0, 0]), None);
}

#[test]
fn changes_and_their_ends_fit_a_message() {
    for change in [
        Change::Limit(u64::MAX),
        Change::Freeze,
        Change::Thaw,
        Change::Weight { process: 7, weight: 10_000 },
        Change::GroupWeight(7),
        Change::Tiers(u32::MAX),
        Change::LimitInTiers { bytes: 1 << 40, devices: 7 },
    ] {
        assert_eq!(Change::unpack(change.pack()), Some(change));
    }
    assert_eq!(
        [[3, 7, 0], [3, 7, 10_001], [3, 7 | 1 << 32, 1], [4, 0, 0], [4, 10_001, 0], [5, 0, 0]]
            .map(Change::unpack),
        [None; 6]
    );
    for end in [
        ChangeEnd::Done { charge: 1 << 40 },
        ChangeEnd::NotPermitted,
        ChangeEnd::Busy,
        ChangeEnd::TooSmall { least: 8 << 20 },
        ChangeEnd::NoRoom { charge: u64::MAX },
        ChangeEnd::Frozen { charge: 7 },
        ChangeEnd::Unstoppable { process: u32::MAX },
        ChangeEnd::NoMember { process: 7 },
        ChangeEnd::NoDevice,
    ] {
        assert_eq!(ChangeEnd::unpack(end.pack()), Some(end));
    }
    assert_eq!(ChangeEnd::unpack([9, 0, 0]), None);
}

#[test]
fn numbers_name_notes_endings_and_reasons() {
    Note::ALL.into_iter().for_each(|note| assert_eq!(Note::from_number(note as u64), Some(note)));
    Ending::ALL.into_iter().for_each(|end| assert_eq!(Ending::from_number(end as u64), Some(end)));
    let reasons = OutOfMemory::ALL.into_iter();
    reasons.for_each(|reason| assert_eq!(OutOfMemory::from_number(reason as u64), Some(reason)));
    assert_eq!((Note::from_number(0), Ending::from_number(u64::MAX)), (None, None));
    assert_eq!(OutOfMemory::from_number(4), None);
}

#[test]
fn why_a_page_is_lost_fits_a_word() {
    let slot = (1 << 44) - 1;
    for lost in [
        Lost::Corrupt,
        Lost::CorruptOnDevice { slot },
        Lost::Unreadable { slot: 7, errno: 0 },
        Lost::Unreadable { slot, errno: 4095 },
        Lost::Missing,
    ] {
        assert_eq!(Lost::unpack(lost.pack()), lost);
    }
}

#[test]
fn the_number_of_filters_leaves_the_other_bits_alone() {
    let all = welcome::USERFAULT | welcome::TRACE | welcome::FILES;
    for (count, said) in [(0, 0), (1, 1), (40_000, 40_000), (65_535, 65_535), (1 << 20, 65_535)] {
        let flags = all | welcome::with_filters(count);
        assert_eq!((welcome::filters(flags), flags & all), (said, all));
        assert_eq!(welcome::filters(welcome::with_filters(count)), said);
    }
}
