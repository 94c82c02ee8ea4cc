//! Models of a page's life under loom: the page is present, the evictor takes it out and writes it
//! back, while the program writes to it or gives it up. The transitions are the real ones; the
//! kernel's mapping, staging and the device are a value each.
//!
//! These must hold: the program reads the value that it wrote last, or zero after it gave the page
//! up, wherever the page was at that moment; and each swap entry is freed exactly once, or held by
//! the word.

mod common;

use common::{Word, put_zeroes};
use folioswap_policy::page::{PageState, PageWord};
use folioswap_slots::SwapEntry;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use loom::sync::{Arc, Mutex};
use loom::thread;

const BEFORE: u64 = 1;
const WRITTEN: u64 = 2;

/// Whether the evictor passes over a page that was given up a moment ago.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Evicts {
    /// It does, because the kernel may not have zapped the page yet.
    Right,
    /// Wrong: every mapped page is taken.
    WhatIsMapped,
}

/// The way in which the handler serves a page that is on its way to staging.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Serves {
    /// Looks again later.
    Right,
    /// Wrong: takes a page that is on its way for one that was never there.
    AsUntouched,
}

struct Page {
    word: Word,
    /// The contents that the kernel has mapped.
    mapped: Mutex<Option<u64>>,
    staged: Mutex<Option<u64>>,
    stored: Mutex<Option<u64>>,
    cached: AtomicBool,
    freed: AtomicUsize,
    moves: AtomicUsize,
    /// Orders moves and the reading of events.
    move_lock: Mutex<()>,
    /// An event is unread (the kernel's `mmap_changing`): moves are refused.
    event_unread: AtomicBool,
    evicts: Evicts,
    serves: Serves,
}

impl Page {
    fn present(evicts: Evicts, serves: Serves) -> Self {
        Page {
            word: Word::new(PageWord::PRESENT),
            mapped: Mutex::new(Some(BEFORE)),
            staged: Mutex::new(None),
            stored: Mutex::new(None),
            cached: AtomicBool::new(false),
            freed: AtomicUsize::new(0),
            moves: AtomicUsize::new(0),
            move_lock: Mutex::new(()),
            event_unread: AtomicBool::new(false),
            evicts,
            serves,
        }
    }

    /// As the pager's `isolate_row`: claims the word, moves the page, settles the word.
    fn isolate(&self) {
        let _events_wait = self.move_lock.lock().unwrap();
        let before = self.word.load();
        if self.evicts == Evicts::Right && matches!(before.state(), PageState::Removed { .. }) {
            return;
        }
        let Some(isolated) = before.isolate(SwapEntry::from_raw(7).unwrap()) else { return };
        self.cached.store(true, Release);
        if !self.word.replace(before, isolated) {
            return;
        }
        let moved = if self.event_unread.load(Acquire) { None } else { self.mapped.lock().unwrap().take() };
        if moved.is_none() {
            self.word.set(isolated.not_moved(before).unwrap());
            return;
        }
        *self.staged.lock().unwrap() = moved;
        self.moves.fetch_add(1, AcqRel);
        self.word.set(isolated.moved().unwrap());
    }

    /// As `write_back_oldest` and `finish`, if a page was taken.
    fn write_back(&self) {
        let Some(value) = *self.staged.lock().unwrap() else { return };
        *self.stored.lock().unwrap() = Some(value);
        self.cached.store(false, Release);
        self.word.finish(|| self.free());
        *self.staged.lock().unwrap() = None;
    }

    fn free(&self) {
        self.freed.fetch_add(1, AcqRel);
    }

    /// A fault, as in `serve`: the page was not mapped when the program touched it. The program
    /// looks again afterwards.
    fn serve(&self) {
        let before = self.word.load();
        match before.state() {
            PageState::Leaving(_) | PageState::Stored(_) => {
                let claimed = before.claim().unwrap();
                if !self.word.replace(before, claimed) {
                    return;
                }
                let staged = matches!(before.state(), PageState::Leaving(_)) && self.cached.load(Acquire);
                let from = if staged { &self.staged } else { &self.stored };
                let value = from.lock().unwrap().expect("the page is not where its word says");
                let previous = self.mapped.lock().unwrap().replace(value);
                assert_eq!(previous, None, "the kernel would refuse");
                self.word.set(claimed.returned().unwrap());
                if matches!(before.state(), PageState::Stored(_)) {
                    self.free();
                }
            }
            PageState::Isolated(_) if self.serves == Serves::Right => thread::yield_now(),
            PageState::Isolated(_) => {
                put_zeroes(&self.mapped);
            }
            _ => {
                let Some(filling) = before.fill().filter(|&filling| self.word.replace(before, filling))
                else {
                    return;
                };
                let filled = put_zeroes(&self.mapped);
                self.word.set(if filled { filling.filled() } else { filling.not_filled() }.unwrap());
            }
        }
    }

    /// The program touches the page: returns the value that was there and puts the changed one.
    fn touch(&self, change: impl Fn(u64) -> u64) -> u64 {
        loop {
            if let Some(value) = self.mapped.lock().unwrap().as_mut() {
                let before = *value;
                *value = change(before);
                return before;
            }
            self.serve();
        }
    }

    /// madvise(MADV_DONTNEED): raises an event, waits until it has been read, zaps.
    fn give_up(&self) {
        self.event_unread.store(true, Release);
        while self.event_unread.load(Acquire) {
            thread::yield_now();
        }
        *self.mapped.lock().unwrap() = None;
    }

    /// As `read_messages` and `remove_in_block`.
    fn read_event(&self) {
        let _moves_wait = self.move_lock.lock().unwrap();
        self.event_unread.store(false, Release);
        loop {
            let before = self.word.load();
            let removed = before.remove(1).expect("the reader never meets its own claim, nor a move");
            if self.word.replace(before, removed) {
                if matches!(before.state(), PageState::Stored(_)) {
                    self.free();
                }
                return;
            }
        }
    }

    /// Checks that in the end every entry that was used is freed, or held by the word.
    fn check(&self) {
        let held = usize::from(matches!(self.word.load().state(), PageState::Stored(_)));
        assert_eq!(self.freed.load(Acquire) + held, self.moves.load(Acquire), "entries freed and held");
    }
}

fn model(page: fn() -> Page, program: fn(&Arc<Page>)) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let page = Arc::new(page());
        let evictor = {
            let page = page.clone();
            thread::spawn(move || {
                page.isolate();
                page.write_back();
            })
        };
        program(&page);
        evictor.join().unwrap();
        page.check();
    });
}

fn writes_and_reads(page: &Arc<Page>) {
    assert_eq!(page.touch(|_| WRITTEN), BEFORE, "what was there before is lost");
    assert_eq!(page.touch(|value| value), WRITTEN, "the update is lost");
}

/// Gives the page up while a reader of events runs beside; then the page must read as zero.
fn gives_up_and_reads(page: &Arc<Page>) {
    let reader = {
        let page = page.clone();
        thread::spawn(move || {
            while !page.event_unread.load(Acquire) {
                thread::yield_now();
            }
            page.read_event();
        })
    };
    page.give_up();
    // The reader of events is the handler, which serves nothing before it is done with the event.
    reader.join().unwrap();
    assert_eq!(page.touch(|_| WRITTEN), 0, "what was given up came back");
    assert_eq!(page.touch(|value| value), WRITTEN, "the update is lost");
}

#[test]
fn written_and_read_while_it_leaves() {
    model(|| Page::present(Evicts::Right, Serves::Right), writes_and_reads);
}

#[test]
#[should_panic(expected = "is lost")]
fn wrong_a_page_on_its_way_is_not_an_untouched_one() {
    model(|| Page::present(Evicts::Right, Serves::AsUntouched), writes_and_reads);
}

#[test]
fn given_up_while_it_leaves() {
    model(|| Page::present(Evicts::Right, Serves::Right), gives_up_and_reads);
}

#[test]
#[should_panic(expected = "what was given up came back")]
fn wrong_what_was_just_given_up_is_taken_as_long_as_it_is_mapped() {
    model(|| Page::present(Evicts::WhatIsMapped, Serves::Right), gives_up_and_reads);
}
