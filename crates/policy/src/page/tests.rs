use super::*;

fn entry(raw: u64) -> SwapEntry {
    SwapEntry::from_raw(raw).unwrap()
}

fn all() -> [PageWord; 13] {
    let entry = entry(0xab_cdef);
    let isolated = PageWord::PRESENT.isolate(entry).unwrap();
    let leaving = isolated.moved().unwrap();
    let stored = leaving.written().unwrap();
    [
        PageWord::PRESENT,
        PageWord::PRESENT_HOT,
        isolated,
        leaving,
        stored,
        leaving.claim().unwrap(),
        stored.claim().unwrap(),
        stored.claim().unwrap().returned_clean(Heat::Cold).unwrap(),
        stored.claim().unwrap().returned_clean(Heat::Hot).unwrap(),
        PageWord::PRESENT.remove(7).unwrap(),
        PageWord::PRESENT.fill().unwrap(),
        PageWord::PRESENT_HOT.fill().unwrap(),
        PageWord::PRESENT.remove(7).unwrap().fill().unwrap(),
    ]
}

#[test]
fn entry_survives_every_way_round() {
    let entry = entry((1 << 56) - 1);
    let leaving = PageWord::PRESENT.isolate(entry).unwrap().moved().unwrap();
    assert_eq!(leaving.state(), PageState::Leaving(entry));
    assert_eq!(leaving.claim().unwrap().unclaim().unwrap(), leaving);
    let stored = leaving.written().unwrap();
    assert_eq!(stored.claim().unwrap().unclaim().unwrap(), stored);
    assert_eq!(stored.claim().unwrap().entry(), Some(entry));
    assert_eq!(stored.claim().unwrap().returned().unwrap(), PageWord::PRESENT_HOT);
}

#[test]
fn nobody_else_touches_isolated_and_returning() {
    for word in all() {
        if matches!(word.state(), PageState::Isolated(_) | PageState::Returning(_) | PageState::Filling) {
            assert_eq!(word.remove(1), None);
            assert_eq!(word.claim(), None);
            assert_eq!(word.written(), None);
            assert_eq!(word.isolate(entry(3)), None);
            assert_eq!(word.isolate_clean(), None);
            assert_eq!(word.dirtied(), None);
            assert_eq!(word.fill(), None);
            assert_eq!(word.cooled(), None);
        }
    }
}

#[test]
fn what_could_not_be_filled_is_as_before() {
    let removed = PageWord::PRESENT.remove(u32::MAX).unwrap();
    for before in [PageWord::PRESENT, PageWord::PRESENT_HOT, removed] {
        let filling = before.fill().unwrap();
        assert_eq!((filling.state(), filling.entry()), (PageState::Filling, None));
        assert_eq!(filling.not_filled(), Some(before));
        assert!(matches!(filling.filled().unwrap().state(), PageState::Present(_)));
    }
    for word in all() {
        let empty = matches!(word.state(), PageState::Present(_) | PageState::Removed { .. });
        assert_eq!(word.fill().is_some(), empty, "{word:?}");
        let filling = word.state() == PageState::Filling;
        assert_eq!((word.filled().is_some(), word.not_filled().is_some()), (filling, filling), "{word:?}");
    }
}

#[test]
fn a_clean_page_leaves_and_returns_with_one_entry() {
    let entry = entry((1 << 56) - 1);
    let stored = PageWord::PRESENT.isolate(entry).unwrap().moved().unwrap().written().unwrap();
    let hot = stored.claim().unwrap().returned_clean(Heat::Hot).unwrap();
    assert_eq!(hot.state(), PageState::Clean(entry, Heat::Hot));
    let cold = hot.cooled().unwrap();
    assert_eq!((cold.state(), cold.cooled()), (PageState::Clean(entry, Heat::Cold), None));
    let isolated = cold.isolate_clean().unwrap();
    assert_eq!(isolated.not_moved(hot), Some(hot));
    assert_eq!(isolated.moved().unwrap().written(), Some(stored));
    assert_eq!((hot.missed(), cold.missed()), (Some(stored), Some(stored)));
    assert_eq!((hot.dirtied(), cold.dirtied()), (Some(PageWord::PRESENT_HOT), Some(PageWord::PRESENT_HOT)));
    assert_eq!(hot.copy_given_up(), Some(PageWord::PRESENT_HOT));
    assert_eq!(cold.copy_given_up(), Some(PageWord::PRESENT));
    assert_eq!(cold.entry(), Some(entry));
}

#[test]
fn only_what_is_stored_and_alone_becomes_clean() {
    for word in all() {
        let from_stored = word.0 & STATE_BITS == RETURNING_FROM_STORED;
        assert_eq!(word.returned_clean(Heat::Cold).is_some(), from_stored, "{word:?}");
        let clean = matches!(word.state(), PageState::Clean(..));
        assert_eq!(word.isolate_clean().is_some(), clean, "{word:?}");
        // A new entry for a clean page would forget the old one.
        assert!(!(clean && word.isolate(self::entry(3)).is_some()), "{word:?}");
        assert!(!(clean && word.claim().is_some()), "{word:?}");
    }
}

#[test]
fn only_what_holds_nothing_becomes_a_duplicate() {
    let stored = PageWord::PRESENT.isolate(entry(9)).unwrap().moved().unwrap().written().unwrap();
    for word in all() {
        let is_empty = matches!(word.state(), PageState::Present(_) | PageState::Removed { .. });
        assert_eq!(word.duplicate(entry(9)), is_empty.then_some(stored), "{word:?}");
    }
}

#[test]
fn second_chance_is_given_once() {
    assert_eq!(PageWord::PRESENT_HOT.cooled(), Some(PageWord::PRESENT));
    assert_eq!(PageWord::PRESENT.cooled(), None);
}
