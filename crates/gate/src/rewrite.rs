//! Rewriting: a site that traps again and again becomes a jump to a trampoline.
//!
//! A site is `0f 05`. Its jump is `e9` and four bytes of distance, of which the lowest stays `05`:
//! each trampoline lies where the distance ends in that byte. So the bytes behind the site are
//! written first, and then one byte turns `syscall` into `jmp`; whatever a processor fetches, it
//! finds one of the two.
//!
//! The bytes behind the site are the beginning of other instructions. Those are copied into the
//! trampoline at the site's *first* trap, and from then on every call of the site goes on in the
//! copy. So no thread ever stands on the bytes that are overwritten later.
//!
//! Everything here runs in the handler of SIGSYS, with all signals blocked.

pub mod decode;
mod lock;
mod mapped;
mod moved;
mod sites;
mod text;
mod trampolines;

pub(crate) use lock::{free_after_fork, hold_over_fork, release_after_fork};
pub(crate) use mapped::{calls_begin, calls_end};
pub(crate) use moved::begins_instruction;
pub use sites::State;
pub(crate) use text::others_begin;

use crate::confined::is_confined;
use crate::{figures, slot};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use lock::{Held, Patience};
use moved::Moved;
use sites::Site;
use text::Memory;

/// Traps after which a site is rewritten, where nobody chose another number.
const TRAPS: u32 = 3;

static TRAPS_BEFORE: AtomicU32 = AtomicU32::new(TRAPS);

/// Chooses after how many traps a site is rewritten; `u32::MAX` rewrites none. To be called before
/// the gate is armed.
pub fn after_traps(count: u32) {
    TRAPS_BEFORE.store(count, Relaxed);
}

/// Calls `see` with the address behind each site that trapped and can be rewritten.
pub fn for_each_learnt(mut see: impl FnMut(u64)) {
    for site in sites::all() {
        if matches!(site.state(), State::Ready | State::Writing | State::Rewritten) {
            see(site.behind());
        }
    }
}

/// Rewrites the site that ends at `behind`, which a list of positions names. Bytes that are no
/// `syscall` are left alone. Costs some 20 microseconds.
///
/// # Safety
/// No thread may be executing instructions within 16 bytes behind the site: the call belongs
/// before the object's code runs, or before there are other threads.
pub unsafe fn rewrite_listed(behind: u64) -> State {
    let mask = crate::kernel::set_mask(!0);
    let site = prepared(behind);
    if let Some(site) = site.filter(|site| matches!(site.state(), State::Ready | State::Rewritten)) {
        rewrite(site);
    }
    crate::kernel::set_mask(mask);
    site.map_or(State::Never, Site::state)
}

/// Writes text of the process through `/proc`, so that no page is ever writable and executable.
/// Returns whether it is written: of one page, all of it or nothing.
///
/// # Safety
/// No thread executes these bytes at the moment, and they make a program that may go on.
pub unsafe fn write_text(at: u64, bytes: &[u8]) -> bool {
    Memory::open().is_some_and(|memory| memory.write(at, bytes))
}

/// The site that ends at `behind`, prepared. None: the table has no place for it.
fn prepared(behind: u64) -> Option<&'static Site> {
    let site = sites::find_or_add(behind)?;
    if site.state() == State::New {
        prepare(site);
    }
    Some(site)
}

/// Makes a trampoline for the `syscall` that ends at `behind`, if there is one and it can be
/// rewritten; nothing goes there yet.
pub(crate) fn make_ready(behind: u64) -> State {
    prepared(behind).map_or(State::Never, Site::state)
}

/// Rewrites all sites that have a trampoline; returns how many could not be.
///
/// # Safety
/// No other thread may run, nor stand on a byte behind a site that is overwritten.
pub(crate) unsafe fn rewrite_ready() -> usize {
    let is_left = |site: &&Site| {
        if site.state() == State::Ready {
            rewrite(site);
        }
        site.state() == State::Ready
    };
    let left = sites::all().filter(is_left).count();
    text::others_begin();
    text::prepare_to_serialise();
    text::serialise_other_processors();
    left
}

/// Where a thread stands that has this program counter, beside sites that are to be rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stands {
    /// At none, or at a `syscall` itself.
    Elsewhere,
    /// Just behind a `syscall`: it goes on at this address once the site is a jump.
    Behind(u64),
    /// On a further instruction that the jump overwrites.
    Within,
}

/// See [`Stands`].
pub(crate) fn stands(counter: u64) -> Stands {
    let ready = |behind: u64| sites::find(behind).filter(|site| site.state() == State::Ready);
    match ready(counter) {
        Some(site) => Stands::Behind(site.goes_on()),
        None if (1..moved::OVERWRITTEN as u64).any(|back| ready(counter.wrapping_sub(back)).is_some()) => {
            Stands::Within
        }
        None => Stands::Elsewhere,
    }
}

/// Where a call goes on that trapped, and whose site ends at `behind`.
pub(crate) fn lead(behind: u64) -> u64 {
    let traps = TRAPS_BEFORE.load(Relaxed);
    if traps == u32::MAX {
        return behind;
    }
    let Some(site) = sites::find_or_add(behind) else { return behind };
    if site.state() == State::New && !is_confined() {
        prepare(site);
    }
    match site.state() {
        State::New | State::Never => return behind,
        // The bytes are being changed, or could not be changed back.
        State::Writing => return site.goes_on(),
        State::Ready | State::Rewritten => {}
    }
    if !site.is_what_it_was() {
        // Another object lies here now. Its code was never moved.
        return behind;
    }
    if site.count().is_some_and(|count| count >= traps) && !is_confined() {
        text::prepare_to_serialise();
        rewrite(site);
    }
    site.goes_on()
}

/// Makes the trampoline of a site, or decides that it is left alone. Afterwards it is not new.
fn prepare(site: &Site) {
    let held = match Held::wait(Patience::Bounded) {
        Some(held) => held,
        // The thread would go on behind the site, so nobody may rewrite it any more.
        None => return site.give_up(),
    };
    if site.state() != State::New {
        return;
    }
    let made = Memory::open().and_then(|memory| {
        let moved = Moved::read(&memory, &held, site.behind())?;
        let goes_on = trampolines::make(&memory, &held, &moved)?;
        Some((moved, goes_on))
    });
    match made {
        Some((moved, (start, goes_on))) => site.set_ready(&moved, start, goes_on),
        None => site.give_up(),
    }
}

/// Turns a prepared site into a jump, unless mappings change at the moment: then a later trap does.
fn rewrite(site: &Site) {
    let Some(_held) = Held::wait(Patience::None) else { return };
    if !matches!(site.state(), State::Ready | State::Rewritten) {
        return;
    }
    let Some(memory) = Memory::open() else { return };
    let Some(_still) = mapped::stand_still() else { return look_for_abandoned_calls() };
    if !site.is_untouched(&memory) {
        return;
    }
    let jump = site.jump();
    site.set_writing();
    // The last three bytes first: no thread executes them from here.
    if memory.write(site.behind(), &jump[2..]) {
        text::serialise_other_processors();
        if memory.write(site.behind() - 2, &jump[..1]) {
            site.set_rewritten();
            figures::REWRITTEN.add();
            return;
        }
    }
    // Where some of the bytes could be written and cannot be written back, the site stays what it
    // is now: its calls trap, and go on in the trampoline.
    site.try_no_more();
    if memory.write(site.behind(), &site.overwritten()) {
        site.set_ready_again();
    }
}

/// A call for mappings that a handler has left by a jump would keep everything from being
/// rewritten.
fn look_for_abandoned_calls() {
    const EACH: u32 = 64;
    static TIMES: AtomicU32 = AtomicU32::new(0);
    if TIMES.fetch_add(1, Relaxed) % EACH == EACH - 1 {
        let here = 0u8;
        slot::find_abandoned(&raw const here as u64);
    }
}
