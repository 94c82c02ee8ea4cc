//! swapoff against everything else (S14 to S17 of the catalogue). A step at which the swap-in holds
//! its folio is given a thread, since swapoff waits for the folio there.

use super::*;
use crate::swapoff::SwapoffError;
use folioswap_slots::DeviceMask;

fn swapoff(space: &Arc<ShmemSpace>) -> Result<crate::swapoff::SwapoffReport, SwapoffError> {
    space.swapoff(Path::new(DISK), || true)
}

/// Checks that the file is gone, and that no entry names it.
fn file_is_gone(space: &ShmemSpace) {
    let file = space.devices().into_iter().find(|device| device.name == Path::new(DISK)).unwrap();
    assert!(file.is_off && file.used == 0, "{file:?}");
    assert!(space.swap.devices().file().is_none());
    assert_eq!(space.swap.space().file_space().used_on(DeviceMask::ALL), 0);
    assert!(space.swap.space().shared_devices().mask().is_empty());
}

/// S14: swapoff while a page of the device is being swapped in, at each step, whether the folio is
/// held there or not.
#[test]
fn a_swap_in_and_a_swapoff_bring_each_page_back_once() {
    fn at<V: Variant>(step: Step) {
        let object = object_on_file::<V>();
        let space = object.space.clone();
        let (handle, held) = std::sync::mpsc::channel();
        interrupt(step, move || {
            let own = space.clone();
            let thread = std::thread::spawn(move || swapoff(&own).unwrap());
            let is_held = matches!(step, Step::Arrived | Step::BeforeInsertion);
            while is_held && space.swap.devices().on().len() > 1 || !is_held && !thread.is_finished() {
                std::thread::yield_now();
            }
            handle.send(thread).unwrap();
        });
        let outcome = attempt(&object, 5);
        nothing_is_left_to_happen();
        let report = held.recv().unwrap().join().unwrap();
        assert!(report.lost == 0 && report.pages > 0, "{step:?}: {report:?}");
        assert!(matches!(outcome, Ok(()) | Err(None)), "{step:?}: {outcome:?}");
        file_is_gone(&object.space);
        all_pages_are_right(&object);
    }
    for step in [Step::Begun, Step::Missed, Step::Arrived, Step::BeforeInsertion] {
        at::<Series>(step);
        at::<Current>(step);
    }
}

/// S15: pages are cut off while swapoff looks for them; pages that it has read must not come back.
#[test]
fn what_is_truncated_during_a_swapoff_does_not_come_back() {
    for size in [0, 3, 7] {
        for asked in 0..4 {
            let object = object_on_file::<Current>();
            let (space, mut times) = (object.space.clone(), 0);
            let report = space
                .swapoff(Path::new(DISK), || {
                    if times == asked {
                        object.set_size(size * PAGE as u64).unwrap();
                    }
                    times += 1;
                    true
                })
                .unwrap();
            assert_eq!(report.lost, 0);
            file_is_gone(&space);
            let cut = times > asked;
            object.set_size(PAGES * PAGE as u64).unwrap();
            let mut bytes = vec![1; PAGE * PAGES as usize];
            object.read(0, &mut bytes).unwrap();
            let kept = if cut { size } else { PAGES };
            for (page, found) in bytes.chunks(PAGE).enumerate() {
                let expected = if (page as u64) < kept { page_of(page as u64) } else { vec![0; PAGE] };
                assert!(found == expected, "cut to {size} when asked for the {asked} time: page {page}");
            }
            drop(object);
            nothing_is_left(&space);
        }
    }
}

/// S15 with the object dropped: swapoff has a reference to the index, and the content goes all the
/// same.
#[test]
fn an_object_may_be_dropped_during_a_swapoff() {
    let object = object_on_file::<Current>();
    let space = object.space.clone();
    let mut object = Some(object);
    space
        .swapoff(Path::new(DISK), || {
            drop(object.take());
            true
        })
        .unwrap();
    assert!(object.is_none(), "it was asked");
    file_is_gone(&space);
    assert_eq!(space.statistics().content, 0);
    nothing_is_left(&space);
}

/// S16: folios only in the swap cache (read ahead) and clean copies stand for slots of the device
/// that no map names.
#[test]
fn what_no_map_names_leaves_the_device_too() {
    let object = object_on_file::<Current>();
    let space = &object.space;
    // One page is asked for: the others are read ahead, and that one keeps its copy.
    assert_eq!(attempt(&object, 2), Ok(()));
    let file = space.swap.space().file_space();
    assert!(space.counters.now().swap_ra > 0);
    assert_eq!(file.used_on(DeviceMask::ALL), PAGES, "nothing was freed by reading it");
    // The page is cut off while its folio is only in the swap cache: only the cache has the slot.
    let entry = entry_at(&object, 3).0;
    let SlotWord::Cached { folio, .. } = space.swap.space().slots().word(entry) else {
        panic!("not read ahead")
    };
    space.folios.lock(folio.0);
    object.punch_hole(3 * PAGE as u64, PAGE as u64).unwrap();
    space.folios.unlock(folio.0);
    assert_eq!(file.used_on(DeviceMask::ALL), PAGES, "the folio has it still");
    swapoff(space).unwrap();
    file_is_gone(space);
    object.write(3 * PAGE as u64, &page_of(3)).unwrap();
    all_pages_are_right(&object);
    let written = space.counters.now().pswpout;
    out(&object, 2, Afterwards::Freed);
    assert_eq!(space.counters.now().pswpout, written + 1, "it leaves to another device, by being written");
    all_pages_are_right(&object);
}

/// S17: swapoff waits for a thread that has chosen the device before it went off, and writes to it;
/// afterwards no thread chooses it.
#[test]
fn nobody_writes_to_a_device_that_is_off() {
    let object = object_on_file::<Current>();
    let space = &object.space;
    let writing = space.swap.devices().write();
    let own = space.clone();
    let thread = std::thread::spawn(move || swapoff(&own).unwrap());
    while space.swap.devices().on().len() > 1 {
        std::thread::yield_now();
    }
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert!(!thread.is_finished(), "it waits for who had chosen");
    assert_eq!(space.swap.space().file_space().used_on(DeviceMask::ALL), PAGES, "and has not begun");
    drop(writing);
    assert_eq!(thread.join().unwrap().pages, PAGES);
    file_is_gone(space);
    out(&object, 0, Afterwards::Freed);
    assert_eq!(space.demote(), 0, "there is nowhere to");
    all_pages_are_right(&object);
}

#[test]
fn the_compressed_store_is_taken_off_too_and_what_was_in_it_goes_to_the_file() {
    let object = object_with::<Current>(with_file());
    let space = &object.space;
    out(&object, 0, Afterwards::Freed);
    let report = space.swapoff(Path::new("zram"), || true).unwrap();
    assert_eq!(report.pages, PAGES);
    assert_eq!(space.swap.space().mm_stat().objects, 0);
    all_pages_are_right(&object);
    out(&object, 0, Afterwards::Freed);
    assert_eq!(space.swap.space().file_space().used_on(DeviceMask::ALL), PAGES);
    assert_eq!(space.swapoff(Path::new("zram"), || true), Err(SwapoffError::NoDevice("zram".into())));
    all_pages_are_right(&object);
    // This was the last device: all content stays in memory from now on.
    swapoff(space).unwrap();
    file_is_gone(space);
    let held = object.existing(0, Hold::Exclusive, 1).unwrap().unwrap();
    let frame = held.into_frame();
    space.lru.remove(&space.folios, frame);
    assert_eq!(space.swap_out(frame), 0, "there is no device");
    all_pages_are_right(&object);
}

#[test]
fn an_interrupted_swapoff_leaves_the_device_in_use() {
    let object = object_on_file::<Current>();
    let space = &object.space;
    assert_eq!(space.swapoff(Path::new("/nowhere"), || true), Err(SwapoffError::NoDevice("/nowhere".into())));
    assert_eq!(space.swapoff(Path::new(DISK), || false), Err(SwapoffError::Interrupted));
    assert!(!space.devices()[1].is_off);
    all_pages_are_right(&object);
    assert_eq!(swapoff(space).map(|report| report.lost), Ok(0));
    file_is_gone(space);
    all_pages_are_right(&object);
}

/// Pages that cannot be read are named, and do not keep the device in use.
#[test]
fn what_is_damaged_is_lost_alone() {
    let object = object_on_file::<Current>();
    damage(&object, 9);
    let report = swapoff(&object.space).unwrap();
    assert_eq!((report.pages, report.lost), (PAGES - 1, 1));
    file_is_gone(&object.space);
    let mut page = vec![0; PAGE];
    assert_eq!(object.read(9 * PAGE as u64, &mut page), Err(ShmemError::Io { index: 9 }));
    object.write(9 * PAGE as u64, &page_of(9)).unwrap();
    all_pages_are_right(&object);
}

/// Without room for the pages on the device nothing is begun, or it ends with the device in use
/// again, and nothing lost.
#[test]
fn without_room_the_device_stays() {
    for store in [true, false] {
        let mut options = Options { limit: 8 << 20, ..with_file() };
        if !store {
            options.devices.remove(0);
        }
        let space = ShmemSpace::with(options, Background::Nobody).unwrap();
        let object = ObjectOf::<Interrupted<Current>>::new(&space, HugePolicy::Never);
        let pages = (24 << 20) / PAGE as u64;
        for page in 0..pages {
            object.write(page * PAGE as u64, &noise(page, PAGE)).unwrap();
        }
        let inuse = space.swap.space().file_space().used_on(DeviceMask::ALL);
        assert!(inuse > pages / 2, "it does not fit: {inuse}");
        let refused = swapoff(&space).unwrap_err();
        assert!(matches!(refused, SwapoffError::NoRoom { .. }), "{refused}");
        assert!(space.devices().iter().all(|device| !device.is_off));
        for page in 0..pages {
            let mut found = vec![0; PAGE];
            object.read(page * PAGE as u64, &mut found).unwrap();
            assert!(found == noise(page, PAGE), "page {page}");
        }
        // With most of the content gone there is room.
        object.set_size(4 << 20).unwrap();
        swapoff(&space).unwrap();
        file_is_gone(&space);
        space.validate().unwrap();
    }
}
