//! Models of clean pages under loom: the evictor that takes a page out without writing it, against
//! the program that writes it, the handler that serves both, and a fork freeze, in which
//! protections are lifted without a change of the words.
//!
//! The transitions are the real ones. The kernel is modelled by its guarantees: protection,
//! presence and contents of a page change together, under one lock, and a write to a protected or
//! missing page waits for the handler.
//!
//! These must hold: a thread that reads the page at the end finds the value written last, and the
//! entry is freed exactly once, when nothing refers to it. The wrong ways that prototypes went are
//! models too, and must fail.

mod common;

use common::Word;
use folioswap_policy::page::{Heat, PageState, PageWord};
use folioswap_slots::SwapEntry;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// Contents: the stored copy holds `OLD`, the program writes `NEW`.
const OLD: u64 = 1;
const NEW: u64 = 2;

/// All wrong ways fail with two of these already.
const PREEMPTIONS: usize = 4;

/// The page as the kernel has it.
#[derive(Clone, Copy)]
struct Mapped {
    present: bool,
    protected: bool,
    contents: u64,
}

struct Page {
    word: Word,
    kernel: Mutex<Mapped>,
    move_lock: Mutex<()>,
    /// Held by the evictor for a batch and by a fork for its freeze.
    gate: Mutex<()>,
    /// The page in staging, after the evictor has moved it.
    staged: Mutex<Option<u64>>,
    freed: AtomicUsize,
    freeze_was_on: AtomicBool,
}

/// The way in which the evictor takes a page out.
#[derive(Clone, Copy, PartialEq)]
enum Drops {
    /// Claims the word, asks the kernel, moves.
    Right,
    /// Wrong: asks the kernel before it has the gate and the word.
    AsksFirst,
    /// Wrong: looks whether the page is clean, then claims whatever stands there.
    DecidesFirst,
    /// Wrong: believes the word without asking the kernel.
    Believes,
}

/// The way in which the handler brings a page back for a write.
#[derive(Clone, Copy, PartialEq)]
enum Returns {
    /// Frees the entry: nothing is kept.
    Right,
    /// Wrong: the page stays clean.
    KeepsTheFlag,
}

/// How a page is copied in.
#[derive(Clone, Copy, PartialEq)]
enum Copying {
    Writable,
    /// Write-protected from its first moment.
    Protected,
}

/// The result of serving a write fault.
#[derive(Clone, Copy, PartialEq)]
enum Serve {
    Done,
    /// The word has changed meanwhile.
    LookAgain,
}

fn entry() -> SwapEntry {
    SwapEntry::from_raw(7).unwrap()
}

impl Page {
    fn new(word: PageWord, kernel: Mapped) -> Self {
        Page {
            word: Word::new(word),
            kernel: Mutex::new(kernel),
            move_lock: Mutex::new(()),
            gate: Mutex::new(()),
            staged: Mutex::new(None),
            freed: AtomicUsize::new(0),
            freeze_was_on: AtomicBool::new(false),
        }
    }

    fn stored() -> Self {
        let word = PageWord::PRESENT.isolate(entry()).unwrap().moved().unwrap().written().unwrap();
        Page::new(word, Mapped { present: false, protected: false, contents: 0 })
    }

    fn clean() -> Self {
        let page = Page::stored();
        page.swap_in_for_read();
        page
    }

    fn free(&self) {
        assert_eq!(self.freed.fetch_add(1, AcqRel), 0, "the entry is freed twice");
    }
    fn copy_in(&self, copy: Copying, contents: u64) {
        assert_eq!(self.freed.load(Acquire), 0, "read after it was freed");
        let mut kernel = self.kernel.lock().unwrap();
        assert!(!kernel.present, "the handler alone fills");
        *kernel = Mapped { present: true, protected: copy == Copying::Protected, contents };
    }

    /// Returns a page from staging: nothing is kept, and the evictor frees the entry.
    fn take_back(&self, claimed: PageWord) {
        let contents = self.staged.lock().unwrap().expect("what is leaving is in staging");
        self.copy_in(Copying::Writable, contents);
        self.word.set(claimed.returned().unwrap());
    }

    fn swap_in_for_read(&self) {
        let before = self.word.load();
        let Some(claimed) = before.claim() else { return };
        if self.word.replace(before, claimed) {
            if let PageState::Leaving(_) = before.state() {
                return self.take_back(claimed);
            }
            self.copy_in(Copying::Protected, OLD);
            self.word.set(claimed.returned_clean(Heat::Cold).unwrap());
        }
    }

    fn swap_in_for_write(&self, returns: Returns) {
        let before = self.word.load();
        let Some(claimed) = before.claim() else { return };
        if self.word.replace(before, claimed) {
            if let PageState::Leaving(_) = before.state() {
                return self.take_back(claimed);
            }
            self.copy_in(Copying::Writable, OLD);
            match returns {
                Returns::Right => {
                    self.word.set(claimed.returned().unwrap());
                    self.free();
                }
                Returns::KeepsTheFlag => self.word.set(claimed.returned_clean(Heat::Cold).unwrap()),
            }
        }
    }

    /// A write fault on a protected page, as in `serve` and `serve_clean`.
    fn serve_protected(&self) -> Serve {
        let word = self.word.load();
        match word.state() {
            PageState::Isolated(_) => {
                drop(self.move_lock.lock().unwrap());
                return Serve::LookAgain;
            }
            PageState::Clean(..) => {
                if !self.word.replace(word, word.dirtied().unwrap()) {
                    return Serve::LookAgain;
                }
                self.free();
            }
            _ => {}
        }
        self.kernel.lock().unwrap().protected = false;
        Serve::Done
    }

    /// A thread of the program writes, waiting for the handler as often as the kernel makes it.
    fn write(&self, returns: Returns) {
        loop {
            let now = {
                let mut kernel = self.kernel.lock().unwrap();
                if kernel.present && !kernel.protected {
                    kernel.contents = NEW;
                    return;
                }
                *kernel
            };
            if now.present {
                while self.serve_protected() == Serve::LookAgain {}
            } else if let PageState::Isolated(_) = self.word.load().state() {
                drop(self.move_lock.lock().unwrap());
            } else {
                self.swap_in_for_write(returns);
            }
        }
    }

    /// The same in a fork freeze: the handler lifts protections and fills pages, and changes no
    /// word.
    fn write_in_freeze(&self) {
        let _freeze = self.gate.lock().unwrap();
        self.freeze_was_on.store(true, Relaxed);
        let mut kernel = self.kernel.lock().unwrap();
        if !kernel.present {
            *kernel = Mapped { present: true, protected: false, contents: OLD };
        }
        kernel.protected = false;
        kernel.contents = NEW;
    }

    fn is_protected(&self) -> bool {
        let kernel = self.kernel.lock().unwrap();
        kernel.present && kernel.protected
    }

    /// The evictor comes by: it does as `isolate` with a clean page, and in the end as
    /// `write_back_oldest`.
    fn take_out(&self, drops: Drops) {
        let asked_first = self.is_protected();
        let _batch = self.gate.lock().unwrap();
        let events_wait = self.move_lock.lock().unwrap();
        let clean_before = matches!(self.word.load().state(), PageState::Clean(..));
        let old = self.word.load();
        let isolated = match drops {
            Drops::DecidesFirst if clean_before => old.isolate_clean().or(old.isolate(entry())),
            _ => old.isolate_clean(),
        };
        let Some(isolated) = isolated.filter(|&isolated| self.word.replace(old, isolated)) else { return };
        let unchanged = match drops {
            Drops::Right => self.is_protected(),
            Drops::AsksFirst => asked_first,
            Drops::DecidesFirst | Drops::Believes => true,
        };
        if drops == Drops::Right && !self.freeze_was_on.load(Relaxed) {
            assert!(unchanged, "a clean page is not protected, and no fork's window explains it");
        }
        if unchanged {
            let mut kernel = self.kernel.lock().unwrap();
            *self.staged.lock().unwrap() = Some(kernel.contents);
            *kernel = Mapped { present: false, protected: false, contents: 0 };
            drop(kernel);
            self.word.set(isolated.moved().unwrap());
            drop(events_wait);
            self.finish();
        } else {
            self.word.set(old.dirtied().unwrap());
            self.free();
        }
    }

    /// The page's turn in staging, as in `write_back.rs`: nothing is written.
    fn finish(&self) {
        loop {
            let word = self.word.load();
            match word.state() {
                PageState::Leaving(_) => {
                    if self.word.replace(word, word.written().unwrap()) {
                        break;
                    }
                }
                PageState::Returning(_) => thread::yield_now(),
                _ => {
                    self.free();
                    break;
                }
            }
        }
        *self.staged.lock().unwrap() = None;
    }

    /// Checks the value that the program finds at the end, and that nothing is lost or left over.
    fn check(&self) {
        let kernel = *self.kernel.lock().unwrap();
        let (word, freed) = (self.word.load(), self.freed.load(Acquire));
        let found = if kernel.present { kernel.contents } else { OLD };
        assert_eq!(found, NEW, "a lost update: {word:?}");
        match word.entry() {
            Some(_) => assert_eq!(freed, 0, "freed while {word:?} refers to it"),
            None => assert_eq!(freed, 1, "nothing refers to the entry, {word:?}"),
        }
    }
}

fn model(
    start: fn() -> Page,
    program: impl Fn(&Page) + Send + Sync + Copy + 'static,
    evictor: impl Fn(&Page) + Send + Sync + Copy + 'static,
) {
    let mut builder = loom::model::Builder::new();
    // Every interleaving with up to this many switches away from a thread that could have gone on.
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(move || {
        let page = Arc::new(start());
        let other = {
            let page = page.clone();
            thread::spawn(move || evictor(&page))
        };
        program(&page);
        other.join().unwrap();
        page.check();
    });
}

#[test]
fn a_write_while_the_page_is_taken_out() {
    model(Page::clean, |page| page.write(Returns::Right), |page| page.take_out(Drops::Right));
}

#[test]
fn read_then_written_while_the_evictor_comes_twice() {
    model(
        Page::stored,
        |page| {
            page.swap_in_for_read();
            page.write(Returns::Right);
        },
        |page| {
            page.take_out(Drops::Right);
            page.take_out(Drops::Right);
        },
    );
}

#[test]
fn a_write_in_a_forks_window() {
    model(
        Page::clean,
        |page| page.write_in_freeze(),
        |page| {
            page.take_out(Drops::Right);
            page.take_out(Drops::Right);
        },
    );
}

/// Even a handler that forgot to free the entry loses nothing, since the kernel is asked.
#[test]
fn a_flag_that_survives_is_found_out() {
    model(
        Page::stored,
        |page| {
            // The model's evictor may find an unprotected clean page without a freeze here: that is
            // the mistake.
            page.freeze_was_on.store(true, Relaxed);
            page.write(Returns::KeepsTheFlag);
        },
        |page| page.take_out(Drops::Right),
    );
}

#[test]
#[should_panic(expected = "a lost update")]
fn wrong_the_flag_survives_a_swap_in_for_writing() {
    model(Page::stored, |page| page.write(Returns::KeepsTheFlag), |page| page.take_out(Drops::Believes));
}

#[test]
#[should_panic(expected = "no fork's window explains it")]
fn wrong_the_flag_survives_and_the_model_sees_it() {
    model(Page::stored, |page| page.write(Returns::KeepsTheFlag), |page| page.take_out(Drops::Right));
}

/// Afterwards the word names an entry that was freed.
#[test]
#[should_panic(expected = "read after it was freed")]
fn wrong_the_flag_is_read_before_the_word_is_claimed() {
    model(Page::clean, |page| page.write(Returns::Right), |page| page.take_out(Drops::DecidesFirst));
}

#[test]
#[should_panic(expected = "a lost update")]
fn wrong_the_kernel_is_asked_before_the_word_is_claimed() {
    model(Page::clean, |page| page.write_in_freeze(), |page| page.take_out(Drops::AsksFirst));
}

#[test]
#[should_panic(expected = "a lost update")]
fn wrong_the_word_is_believed_after_a_forks_window() {
    model(Page::clean, |page| page.write_in_freeze(), |page| page.take_out(Drops::Believes));
}
