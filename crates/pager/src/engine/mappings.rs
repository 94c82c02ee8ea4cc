//! The memory of the program that the engine manages, and the program's advice on it.

use crate::engine::Engine;
use crate::engine::holds::{Gate, Populate};
use crate::engine::requests::Request;
use crate::engine::threads::Life;
use crate::kernel::futex::{self, Sharing};
use crate::kernel::ranges::{Range, Ranges};
use crate::units::PageAddr;
use core::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed},
};

/// How often, and how far apart, a thread looks whether the pager has followed its request. An
/// evictor that was woken does so in its next pass; one that stands still for longer than all looks
/// together waits for a fork or for a device, and takes nothing out meanwhile.
const LOOKS_FOR_ROUNDS: u32 = 1000;
const LOOK_FOR_ROUNDS_NS: u64 = 200_000;

/// How a wait for the pager has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The pager has looked.
    Answered,
    /// The pager has not: this process is not managed (any more), or its evictor stands still.
    InVain,
}

/// The most pages of words that the kernel uses which are kept resident.
pub const PAGES_OF_WORDS_MAX: u32 = 16 << 10;

/// Mappings that have grown of which the pager learns at once. Threads ask again for others.
const GROWN_AT_ONCE: usize = 32;

/// How often a thread asks for such a page when too many others wait.
const TRIES_FOR_WORDS: u32 = 32;

/// The program's mappings, as far as the engine manages them.
#[repr(C)]
pub struct Mappings {
    /// The registered ranges, which change under `Locks::moves`.
    pub(crate) registered: Ranges,
    /// 0 until memory is registered with userfaultfd for the first time.
    pub(crate) engaged: AtomicU32,
    /// Raised by a thread that has mapped memory and wants it looked at before it is touched.
    pub(crate) scan_wanted: AtomicU32,
    /// The gate before the program's calls, where there is one.
    pub(crate) gate: AtomicPtr<Gate>,
    /// 1 from before the handler reads events until all that it has read are applied (a futex).
    pub(crate) events_wait: AtomicU32,
    /// Counts the evictor's looks at the mappings (a futex).
    pub(crate) scans: AtomicU32,
    /// The time at which the last look ended.
    pub(crate) scanned_ns: AtomicU64,
    /// Bytes in small mappings that the program has made, or made accessible, since the last look
    /// began.
    pub(crate) small_mapped: AtomicUsize,
    /// Epoch of removals, a second long or longer; see [`Engine::pass_epoch`].
    pub(crate) epoch: AtomicU32,
}

/// The program's advice on its memory. The sets are protected by
/// `Locks::kept`.
#[repr(C)]
pub struct Said {
    /// Ranges that must stay resident (thread control blocks, stacks).
    pub(crate) kept: Ranges,
    /// Ranges for which the program wants huge pages.
    pub(crate) huge_pages: Ranges,
    /// Ranges for which the program wants no huge pages.
    pub(crate) no_huge_pages: Ranges,
    /// 1 once the program has given either advice.
    pub(crate) huge_advised: AtomicU32,
    /// The page of the last word that was kept by [`Engine::keep_word_resident`], and how many such
    /// pages there were.
    last_word: AtomicUsize,
    pages_of_words: AtomicU32,
}

impl Engine {
    /// Whether memory is registered.
    pub(crate) fn is_engaged(&self) -> bool {
        self.mappings.engaged.load(Acquire) != 0
    }

    /// The registered range in which this page lies. The caller does not hold the move lock.
    pub(crate) fn registered_around(&self, page: PageAddr) -> Option<Range> {
        let _events_wait = self.locks.moves.lock();
        let range = self.mappings.registered.next(page.raw())?;
        (range.start <= page.raw()).then_some(range)
    }

    /// Keeps `start..end` of the program resident from now on (rounded outwards to pages).
    pub fn keep_resident(&self, start: usize, end: usize) {
        self.request(Request::KeepResident, start & !0xfff, end.next_multiple_of(4096));
    }

    /// Keeps the pages of a word that the kernel uses resident, if that is possible now: nobody
    /// waits for the pager here, and [`PAGES_OF_WORDS_MAX`] pages are kept so at most, since
    /// nothing tells when such a word is used no more. Threads of the program.
    pub fn keep_word_resident(&self, start: usize, end: usize) {
        let (start, end) = (start & !0xfff, end.next_multiple_of(4096));
        // Many of them lie in one page.
        if !self.is_ours() || self.said.last_word.swap(start, Relaxed) == start {
            return;
        }
        if self.said.pages_of_words.fetch_add(1, Relaxed) >= PAGES_OF_WORDS_MAX {
            self.said.pages_of_words.fetch_sub(1, Relaxed);
            return;
        }
        for _ in 0..TRIES_FOR_WORDS {
            if self.life() == Life::Unmanaged || self.requests.post(Request::KeepResident, start, end) {
                return;
            }
            if self.life() == Life::Running {
                // The cells are full until the evictor has looked.
                futex::post(&self.member().wake, Sharing::Shared);
            }
            rustix::thread::sched_yield();
        }
    }

    /// As [`Engine::keep_resident`], and returns when the pager knows of it and the pages are in
    /// memory, writable. Then they leave no more, and no fork protects them. Threads of the
    /// program.
    pub fn keep_resident_from_now(&self, start: usize, end: usize) {
        self.keep_resident(start, end);
        self.wait_for_pager();
        let (start, end) = (start & !0xfff, end.next_multiple_of(4096));
        // Where the range is not the program's, the kernel refuses, and the program's own use of it
        // fails as well.
        let _ = self.populate(start, end, Populate::Write);
    }

    /// Waits until the evictor has looked at the requests twice: what was left before is followed,
    /// and no batch is under way that began without it. Threads of the program.
    pub(crate) fn wait_for_pager(&self) -> Wait {
        let before = self.requests.rounds();
        for _ in 0..LOOKS_FOR_ROUNDS {
            let rounds = self.requests.rounds();
            if rounds.wrapping_sub(before) >= 2 {
                return Wait::Answered;
            }
            if !self.is_ours() || self.life() != Life::Running {
                break;
            }
            futex::post(&self.member().wake, Sharing::Shared);
            futex::wait(self.requests.rounds_word(), rounds, LOOK_FOR_ROUNDS_NS, Sharing::Private);
        }
        Wait::InVain
    }

    pub(crate) fn request(&self, kind: Request, start: usize, end: usize) {
        if self.is_ours() {
            while self.life() != Life::Unmanaged && !self.requests.post(kind, start, end) {
                rustix::thread::sched_yield();
            }
        }
    }

    /// Applies the requests of the program's threads, but for those about mappings that have grown:
    /// their threads ask again. Pager threads, or a forking thread that has stopped them.
    pub(crate) fn apply_requests(&self) {
        self.apply_advice(|_| ());
    }

    /// Applies all requests of the program's threads. Evictor.
    pub(crate) fn apply_all_requests(&self) {
        let mut grown = [Range { start: 0, end: 0 }; GROWN_AT_ONCE];
        let mut count = 0;
        self.apply_advice(|range| {
            if let Some(place) = grown.get_mut(count) {
                *place = range;
                count += 1;
            }
        });
        // Others take the lock of the advice within the move lock.
        grown[..count].iter().for_each(|range| self.learn_grown(range.start, range.end));
    }

    /// Applies the requests that are advice, and passes mappings that have grown on.
    fn apply_advice(&self, mut grown: impl FnMut(Range)) {
        let _guard = self.locks.kept.lock();
        // A full set can only mean 49 152 stacks; then a stack may be swapped.
        let kept = &self.said.kept;
        let (huge, single) = (&self.said.huge_pages, &self.said.no_huge_pages);
        self.requests.take(|kind, start, end| {
            let _ = match kind {
                Request::KeepResident => kept.insert(start, end),
                Request::Grown => {
                    grown(Range { start, end });
                    Ok(())
                }
                Request::HugePages | Request::NoHugePages => {
                    self.said.huge_advised.store(1, Relaxed);
                    let (said, other) =
                        if kind == Request::HugePages { (huge, single) } else { (single, huge) };
                    let _ = other.remove(start, end);
                    said.insert(start, end)
                }
            };
        });
    }
}
