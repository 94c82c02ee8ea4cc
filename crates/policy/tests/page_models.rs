//! Models of the page word under loom: the evictor's write-back against the fault handler and the
//! reader of events, over every interleaving. The transitions are the real ones; the slot's cached
//! state, its location and the berth in staging are a flag each.
//!
//! These must hold: a page is copied from staging only while its berth is certainly filled, from
//! the device only when its location is set, and its swap entry is freed exactly once, by exactly
//! one of the two.

mod common;

use common::{Word, put_zeroes};
use folioswap_policy::page::{PageState, PageWord};
use folioswap_slots::SwapEntry;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use loom::sync::{Arc, Mutex};
use loom::thread;

struct Page {
    word: Word,
    cached: AtomicBool,
    located: AtomicBool,
    staged: AtomicBool,
    freed: AtomicUsize,
}

/// The kernel's answer to the handler's copy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Copying {
    Taken,
    Refused,
}

impl Page {
    fn leaving() -> Self {
        let entry = SwapEntry::from_raw(7).unwrap();
        let word = PageWord::PRESENT.isolate(entry).unwrap().moved().unwrap();
        Page {
            word: Word::new(word),
            cached: AtomicBool::new(true),
            located: AtomicBool::new(false),
            staged: AtomicBool::new(true),
            freed: AtomicUsize::new(0),
        }
    }

    fn free(&self) {
        assert_eq!(self.freed.fetch_add(1, AcqRel), 0, "the entry is freed twice");
    }

    /// The end of a write-back, as in the pager's `finish`: location, out of the cache, word; then
    /// the berth is given back.
    fn write_back(&self) {
        self.located.store(true, Release);
        self.cached.store(false, Release);
        self.word.finish(|| self.free());
        self.staged.store(false, Release);
    }

    /// A fault, as in `swap_in`.
    fn fault(&self, copy: Copying) {
        loop {
            let before = self.word.load();
            let Some(claimed) = before.claim() else { return };
            if !self.word.replace(before, claimed) {
                continue;
            }
            let from_staging = matches!(before.state(), PageState::Leaving(_)) && self.cached.load(Acquire);
            if from_staging {
                assert!(self.staged.load(Acquire), "copied from a place that was given back");
            } else {
                assert!(self.located.load(Acquire), "read from a device before the location was set");
            }
            if copy == Copying::Refused {
                self.word.set(claimed.unclaim().unwrap());
                return;
            }
            self.word.set(claimed.returned().unwrap());
            if matches!(before.state(), PageState::Stored(_)) {
                self.free();
            }
            return;
        }
    }

    /// The program gave the page up, as in `remove_in_block`.
    fn remove(&self) {
        loop {
            let before = self.word.load();
            let Some(removed) = before.remove(1) else { panic!("the reader never meets its own claim") };
            if self.word.replace(before, removed) {
                if matches!(before.state(), PageState::Stored(_)) {
                    self.free();
                }
                return;
            }
        }
    }
}

fn model(
    handler: impl Fn(&Page) + Send + Sync + Copy + 'static,
    check: impl Fn(&Page) + Send + Sync + Copy + 'static,
) {
    loom::model(move || {
        let page = Arc::new(Page::leaving());
        let evictor = {
            let page = page.clone();
            thread::spawn(move || page.write_back())
        };
        handler(&page);
        evictor.join().unwrap();
        check(&page);
    });
}

#[test]
fn a_fault_while_the_folio_is_written_back() {
    model(
        |page| page.fault(Copying::Taken),
        |page| {
            assert_eq!(page.word.load(), PageWord::PRESENT_HOT);
            assert_eq!(page.freed.load(Acquire), 1);
        },
    );
}

#[test]
fn a_fault_whose_copy_the_kernel_refuses() {
    model(
        |page| page.fault(Copying::Refused),
        |page| {
            assert!(matches!(page.word.load().state(), PageState::Stored(_)));
            assert_eq!(page.freed.load(Acquire), 0);
        },
    );
}

#[test]
fn refused_once_then_served() {
    model(
        |page| {
            page.fault(Copying::Refused);
            page.fault(Copying::Taken);
        },
        |page| {
            assert_eq!(page.word.load(), PageWord::PRESENT_HOT);
            assert_eq!(page.freed.load(Acquire), 1);
        },
    );
}

#[test]
fn a_removal_while_the_folio_is_written_back() {
    model(
        |page| page.remove(),
        |page| {
            assert_eq!(page.word.load().state(), PageState::Removed { epoch: 1 });
            assert_eq!(page.freed.load(Acquire), 1);
        },
    );
}

#[test]
fn refused_then_removed() {
    model(
        |page| {
            page.fault(Copying::Refused);
            page.remove();
        },
        |page| assert_eq!(page.freed.load(Acquire), 1),
    );
}

/// The value that the program wrote; zeroes would be a lost update.
const WRITTEN: u64 = 1;

/// A page in a window of first touches: its word says `Present`, and it *is* there, although no
/// word tells.
struct Touched {
    word: Word,
    /// The contents that the kernel has mapped.
    mapped: Mutex<Option<u64>>,
    staged: Mutex<Option<u64>>,
}

/// The way in which the handler fills a window.
#[derive(Clone, Copy)]
enum Fills {
    /// Claims the word first.
    Right,
    /// Wrong: looks at the word, then fills.
    LooksOnly,
}

impl Touched {
    /// As in the pager's `isolate`: the move lock does not matter here, since a first touch does
    /// not take it.
    fn evict(&self) {
        let before = self.word.load();
        let Some(isolated) = before.isolate(SwapEntry::from_raw(7).unwrap()) else { return };
        if !self.word.replace(before, isolated) {
            return;
        }
        let moved = self.mapped.lock().unwrap().take();
        *self.staged.lock().unwrap() = moved;
        let after = if moved.is_some() { isolated.moved() } else { isolated.not_moved(before) };
        self.word.set(after.unwrap());
    }

    /// As in the pager's `first_touch`: the kernel refuses where a page is.
    fn fill(&self, fills: Fills) {
        let before = self.word.load();
        let Some(filling) = before.fill() else { return };
        if matches!(fills, Fills::Right) && !self.word.replace(before, filling) {
            return;
        }
        let filled = put_zeroes(&self.mapped);
        if matches!(fills, Fills::Right) {
            let after = if filled { filling.filled() } else { filling.not_filled() };
            self.word.set(after.unwrap());
        }
    }

    /// Returns the value that the program reads afterwards.
    fn read(&self) -> u64 {
        let mapped = *self.mapped.lock().unwrap();
        mapped.unwrap_or_else(|| self.staged.lock().unwrap().expect("the page is nowhere"))
    }
}

fn first_touch(fills: Fills) {
    loom::model(move || {
        let page = Arc::new(Touched {
            word: Word::new(PageWord::PRESENT),
            mapped: Mutex::new(Some(WRITTEN)),
            staged: Mutex::new(None),
        });
        let evictor = {
            let page = page.clone();
            thread::spawn(move || page.evict())
        };
        page.fill(fills);
        evictor.join().unwrap();
        assert_eq!(page.read(), WRITTEN, "the update is lost");
        let away = page.mapped.lock().unwrap().is_none();
        assert_eq!(matches!(page.word.load().state(), PageState::Leaving(_)), away);
    });
}

#[test]
fn a_first_touch_beside_a_page_that_leaves() {
    first_touch(Fills::Right);
}

#[test]
#[should_panic(expected = "the update is lost")]
fn wrong_a_first_touch_that_only_looks() {
    first_touch(Fills::LooksOnly);
}
