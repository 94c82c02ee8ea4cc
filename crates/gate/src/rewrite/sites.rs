//! The table of sites that trapped.

use super::lock::{Held, Patience};
use super::moved::{MOVED_BYTES, Moved};
use super::text::Memory;
use crate::figures;
use core::cell::UnsafeCell;
use core::sync::atomic::{
    AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

/// Sites that the table has; further ones trap for ever. glibc and its loader have 572.
const SITES: usize = 4096;
/// In place of the count of traps.
const NO_MORE: u32 = u32::MAX;
/// Places that are looked at for one address.
const PROBES: usize = 64;

/// What has become of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// Its first trap is being served.
    New = 0,
    /// It cannot be rewritten, and traps each time.
    Never = 1,
    /// It has a trampoline: its calls go on there.
    Ready = 2,
    /// Its bytes are being changed.
    Writing = 3,
    /// It is a jump.
    Rewritten = 4,
}

/// One site, named by the address behind its two bytes.
pub(super) struct Site {
    behind: AtomicU64,
    state: AtomicU32,
    traps: AtomicU32,
    words: UnsafeCell<Words>,
}

#[derive(Clone, Copy)]
struct Words {
    /// The instructions that were behind the site when it was prepared.
    moved: [u8; MOVED_BYTES],
    length: usize,
    trampoline: u64,
    goes_on: u64,
}

// SAFETY: the words are written by the holder of the lock while the state is New, and only read
// once the state says Ready.
unsafe impl Sync for Site {}

static TABLE: [Site; SITES] = [const {
    Site {
        behind: AtomicU64::new(0),
        state: AtomicU32::new(0),
        traps: AtomicU32::new(0),
        words: UnsafeCell::new(Words { moved: [0; MOVED_BYTES], length: 0, trampoline: 0, goes_on: 0 }),
    }
}; SITES];

pub(super) fn all() -> impl Iterator<Item = &'static Site> {
    TABLE.iter().filter(|site| site.behind.load(Acquire) != 0)
}

/// The site that ends at this address, if it is in the table.
pub(super) fn find(behind: u64) -> Option<&'static Site> {
    let there = |site: &&Site| site.behind.load(Acquire);
    places(behind).take_while(|site| there(site) != 0).find(|site| there(site) == behind)
}

/// The places of the table that an address may have, in order.
fn places(behind: u64) -> impl Iterator<Item = &'static Site> {
    let start = (behind.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize;
    (0..PROBES).filter_map(move |probe| TABLE.get((start + probe) % SITES))
}

/// The site that ends at this address; none where the table has no place for it.
pub(super) fn find_or_add(behind: u64) -> Option<&'static Site> {
    for site in places(behind) {
        let there = site.behind.load(Acquire);
        if there == behind {
            return Some(site);
        }
        if there == 0 {
            match site.behind.compare_exchange(0, behind, AcqRel, Acquire) {
                Ok(_) => return Some(site),
                Err(other) if other == behind => return Some(site),
                Err(_) => {}
            }
        }
    }
    None
}

impl Site {
    pub(super) fn behind(&self) -> u64 {
        self.behind.load(Relaxed)
    }

    pub(super) fn state(&self) -> State {
        match self.state.load(Acquire) {
            0 => State::New,
            2 => State::Ready,
            3 => State::Writing,
            4 => State::Rewritten,
            _ => State::Never,
        }
    }

    /// Counts a trap; returns how many there were. None: the site is not to be rewritten.
    pub(super) fn count(&self) -> Option<u32> {
        match self.traps.load(Relaxed) {
            NO_MORE => None,
            count if count == NO_MORE - 1 => Some(count),
            _ => Some(self.traps.fetch_add(1, Relaxed).wrapping_add(1)),
        }
    }

    /// Its bytes cannot be written: nobody tries again.
    pub(super) fn try_no_more(&self) {
        self.traps.store(NO_MORE, Relaxed);
    }

    /// Leaves a new site alone for ever.
    pub(super) fn give_up(&self) {
        if self.state.compare_exchange(State::New as u32, State::Never as u32, AcqRel, Acquire).is_ok() {
            figures::LEFT_ALONE.add();
        }
    }

    /// Nothing where somebody gave the site up meanwhile.
    pub(super) fn set_ready(&self, moved: &Moved, trampoline: u64, goes_on: u64) {
        // SAFETY: the state is New or Never, and the caller holds the lock: nobody else has it.
        unsafe {
            *self.words.get() = Words { moved: moved.bytes, length: moved.length, trampoline, goes_on }
        };
        let _ = self.state.compare_exchange(State::New as u32, State::Ready as u32, AcqRel, Acquire);
    }

    pub(super) fn set_writing(&self) {
        self.state.store(State::Writing as u32, Release);
    }

    pub(super) fn set_rewritten(&self) {
        self.state.store(State::Rewritten as u32, Release);
    }

    pub(super) fn set_ready_again(&self) {
        self.state.store(State::Ready as u32, Release);
    }

    fn words(&self) -> &Words {
        // SAFETY: callers have seen the state Ready or a later one, after which nobody writes.
        unsafe { &*self.words.get() }
    }

    pub(super) fn goes_on(&self) -> u64 {
        self.words().goes_on
    }

    /// The five bytes of the jump. The second is `05`, which is there already.
    pub(super) fn jump(&self) -> [u8; 5] {
        let distance = self.words().trampoline.wrapping_sub(self.behind() + 3) as u32;
        let [a, b, c, d] = distance.to_le_bytes();
        [0xe9, a, b, c, d]
    }

    pub(super) fn overwritten(&self) -> [u8; 3] {
        let [a, b, c, ..] = self.words().moved;
        [a, b, c]
    }

    /// Whether the code behind the site, which has just trapped, is what was moved, or the jump.
    /// Where another object lies there, the site is left alone for ever.
    pub(super) fn is_what_it_was(&self) -> bool {
        if self.matches() {
            return true;
        }
        // The bytes may have been read while they were written: nobody writes them under the lock.
        // Without it they are most likely being written.
        let Some(_held) = Held::wait(Patience::Bounded) else { return true };
        if self.state() == State::Writing || self.matches() {
            return true;
        }
        self.state.store(State::Never as u32, Release);
        false
    }

    fn matches(&self) -> bool {
        let words = self.words();
        let [_, _, jump @ ..] = self.jump();
        let there = |index: usize| {
            // SAFETY: the thread is about to go on there. The moved instructions were mapped when
            // they were read; where less is mapped by now, the thread ends in either case.
            unsafe { ((self.behind() as usize + index) as *const u8).read_volatile() }
        };
        let first: [u8; 3] = core::array::from_fn(there);
        (first == self.overwritten() || first == jump)
            && (3..words.length).all(|index| words.moved.get(index) == Some(&there(index)))
    }

    /// Whether the site's bytes are those that were there at first.
    pub(super) fn is_untouched(&self, memory: &Memory) -> bool {
        let words = self.words();
        let mut now = [0; MOVED_BYTES + 2];
        let Some(now) = now.get_mut(..words.length + 2) else { return false };
        memory.read(self.behind() - 2, now) == now.len()
            && now[..2] == [0x0f, 0x05]
            && now[2..] == words.moved[..words.length]
    }
}
