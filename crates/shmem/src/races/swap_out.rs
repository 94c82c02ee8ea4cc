//! Swap-out and its write-back against truncation, and clean copies.

use super::*;

#[test]
fn the_object_is_on_the_swap_list_before_slots_are_taken_and_off_it_on_failure() {
    let space = ShmemSpace::with(Options::within(32 << 20), Background::Nobody).unwrap();
    let object = Arc::new(ObjectOf::<Interrupted<Current>>::new(&space, HugePolicy::Always));
    let noise = noise(1, PAGES as usize * PAGE);
    object.write(0, &noise).unwrap();
    let folio = object.existing(0, Hold::Exclusive, 1).map_err(drop).unwrap().unwrap().into_frame();
    space.lru.remove(&space.folios, folio);
    // No device takes incompressible pages: the folio is tried as a whole, then page by page, and
    // stays.
    assert_eq!(space.swap_out(folio), 0);
    assert!(!space.swap_list.has(&object.inner));
    let counts = space.counters.now();
    assert_eq!((counts.swpout_fallback[4], counts.swpout, counts.pswpout), (1, [0; 10], 0));
    let mut found = vec![0; noise.len()];
    object.read(0, &mut found).unwrap();
    assert!(found == noise);
    object.write(0, &page_of(0)).unwrap();
    out(&object, 0, Afterwards::Freed);
    assert!(space.swap_list.has(&object.inner));
    drop(object.existing(0, Hold::Shared, 1).unwrap());
    let inner = object.inner.clone();
    drop(object);
    assert!(!space.swap_list.has(&inner));
    space.validate().unwrap();
}

/// Race 8: write-back fails, and meanwhile a part of the range was cut off. The other pages take
/// their places again, page by page.
#[test]
fn write_back_fails_while_a_part_is_truncated() {
    for kept in [0, 1, 5, 15, 16] {
        let object = object::<Current>();
        let space = &object.space;
        let held = object.existing(0, Hold::Exclusive, 1).map_err(drop).unwrap().unwrap();
        let order = held.order;
        let frame = held.into_frame();
        space.lru.remove(&space.folios, frame);
        // As swap-out begins.
        space.swap_list.add(&object.inner, PAGES);
        let entry = space.take_slots(order, frame).unwrap();
        space.folios.of(frame).set_entry(Some(entry));
        object.inner.map.lock().store(0, order, Some(Item::Swap(entry)));
        if kept < PAGES {
            object.set_size(kept * PAGE as u64).unwrap();
        }
        match space.put_back(&object.inner, frame, 0, order, entry) {
            Ok(()) => assert!(kept < PAGES),
            Err(_) => {
                assert_eq!(kept, PAGES, "the folio is whole, and still held");
                space.lru.add(&space.folios, frame);
                space.folios.unlock(frame);
            }
        }
        let mut bytes = vec![0; (kept * PAGE as u64) as usize];
        assert_eq!(object.read(0, &mut bytes), Ok(bytes.len()));
        assert!(bytes == (0..kept).flat_map(page_of).collect::<Vec<_>>());
        assert_eq!((object.pages(), space.frames.used_pages()), (kept, kept));
        // Truncation leaves the object there until the list is pruned, as in the kernel.
        assert!(kept == 0 || !space.swap_list.has(&object.inner), "nothing of it is in swap space");
        let swap = space.swap.space();
        assert_eq!(swap.slots().device_info(swap.device()).unwrap().inuse, 0);
        space.validate().unwrap();
    }
}

/// Race 8 with the object dropped: only the swap-out keeps its map until write-back has failed.
#[test]
fn write_back_fails_while_the_object_is_dropped() {
    let object = object::<Current>();
    let space = object.space.clone();
    let held = object.existing(0, Hold::Exclusive, 1).map_err(drop).unwrap().unwrap();
    let order = held.order;
    let frame = held.into_frame();
    space.lru.remove(&space.folios, frame);
    // As swap-out begins.
    let owner = space.owner(frame).unwrap();
    let weak = Arc::downgrade(&owner);
    space.swap_list.add(&owner, PAGES);
    let entry = space.take_slots(order, frame).unwrap();
    space.folios.of(frame).set_entry(Some(entry));
    owner.map.lock().store(0, order, Some(Item::Swap(entry)));
    drop(object);
    assert_eq!(weak.strong_count(), 1, "the swap-out alone has it");
    assert!(space.put_back(&owner, frame, 0, order, entry).is_ok(), "no page is wanted any more");
    assert!(!space.swap_list.has(&owner));
    drop(owner);
    assert!(weak.upgrade().is_none());
    assert_eq!((space.frames.used_pages(), space.lru.folios()), (0, 0));
    let swap = space.swap.space();
    assert_eq!(swap.slots().device_info(swap.device()).unwrap().inuse, 0);
    space.validate().unwrap();
}

/// Race 13: a clean copy must go before the folio changes, and stays as long as it does not.
#[test]
fn what_is_clean_leaves_without_being_written_and_what_was_written_to_does_not() {
    let object = object::<Current>();
    out(&object, 0, Afterwards::Freed);
    let written = || object.space.counters.now().pswpout;
    let leave = || {
        let crate::lru::Coldest::Folio(frame) = object.space.lru.coldest(&object.space.folios, 64) else {
            panic!("no folio can leave");
        };
        object.space.swap_out(frame);
    };
    let (entry, _) = entry_at(&object, 0);
    assert_eq!(written(), PAGES);
    for _ in 0..3 {
        assert_eq!(attempt(&object, 7), Ok(()));
        leave();
        assert_eq!((written(), entry_at(&object, 0).0), (PAGES, entry), "the same entry, not written again");
    }
    all_pages_are_right(&object);
    object.write(3 * PAGE as u64 + 9, b"new").unwrap();
    leave();
    assert_eq!(written(), 2 * PAGES);
    let mut bytes = [0; 3];
    object.read(3 * PAGE as u64 + 9, &mut bytes).unwrap();
    assert_eq!(&bytes, b"new");
    // The folio is clean again, then cut: the copy goes with the pages that are cut off.
    object.set_size(5 * PAGE as u64).unwrap();
    object.set_size(0).unwrap();
    let space = object.space.swap.space();
    assert_eq!(space.slots().device_info(space.device()).unwrap().inuse, 0);
    object.space.validate().unwrap();
}

/// Pages that the compressed store refuses, and cold pages in it, go to the next device that has
/// room.
#[test]
fn a_full_device_is_passed_over() {
    let file = |name: &str, clusters: u32, priority: i32| {
        let device = SwapDevice::temporary(Path::new(DISK), Some(64 << 20), priority).unwrap();
        SwapDevice { name: name.into(), clusters, ..device }
    };
    let used = |space: &ShmemSpace| -> Vec<u64> {
        space.devices().iter().map(|device| device.used / PAGE as u64).collect()
    };
    // The store is followed by a file of one cluster, and by another file.
    let options = Options { devices: vec![SwapDevice::store(5)], ..Options::within(32 << 20) };
    let options = options.and(file("one", 1, 3)).and(file("two", 4, 2));
    let space = ShmemSpace::with(options, Background::Nobody).unwrap();
    let object = ObjectOf::<Interrupted<Current>>::new(&space, HugePolicy::Always);
    let noise = noise(1, 4 << 20);
    object.write(0, &noise).unwrap();
    assert_eq!(object.page_out(), 1024);
    assert_eq!(used(&space), [0, 512, 512], "of noise the second half goes to the second file");
    let text: Vec<u8> = (0..1024).flat_map(page_of).collect();
    object.write(4 << 20, &text).unwrap();
    assert_eq!(object.page_out(), 1024);
    (0..200).for_each(|_| _ = space.demote());
    assert_eq!(used(&space), [0, 512, 512 + 1024], "what is cold passes over the full one");
    let mut found = vec![0; 8 << 20];
    object.read(0, &mut found).unwrap();
    assert!(found[..4 << 20] == noise && found[4 << 20..] == text);
    space.validate().unwrap();
}
