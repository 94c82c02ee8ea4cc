//! The evictor looks for memory that can be managed: it reads the process's mappings, and registers
//! new ones with userfaultfd.

use crate::engine::Engine;
use crate::engine::holds::By;
use crate::evict::evictor::Evictor;
use crate::kernel::futex::{self, Sharing};
use crate::kernel::maps::{self, MappingFilter};
use crate::kernel::ranges::Range;
use crate::kernel::sys;
use crate::kernel::uffd::Watch;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

/// An address space that grew by this much is looked at without delay.
const GROWTH_BYTES_MIN: u64 = 1 << 20;

/// The time after which an address space that changed by less, or not at all, is looked at. It is
/// not shorter, because memory that is touched before it is registered stays a mapping of its own
/// for ever, and a heap that grows in small steps would become thousands.
const SCAN_CHANGED_NS: u64 = 20_000_000;

const SCAN_UNCHANGED_NS: u64 = 100_000_000;

/// The same where memory is short, whatever the size: while looks find something, and after many
/// that have found nothing.
const SCAN_SHORT_NS: u64 = 3_000_000;

const SCAN_SHORT_IN_VAIN_NS: u64 = 12_000_000;

const SCANS_IN_VAIN: u32 = 8;

/// How long a program counts as growing after new memory was found in it.
const GROWING_NS: u64 = 20_000_000;

/// How the group stands to its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// Far from it.
    Ample,
    /// Near it, or beyond.
    Short,
}

impl Evictor {
    /// Finds mappings that are not registered yet, when the address space has changed, as often as
    /// a twentieth of the thread's time allows (a fifth when memory is short).
    pub(crate) fn register_new(&mut self, memory: Memory) {
        let short = memory == Memory::Short;
        if self.engine.embedded.is_on() {
            // An embedder names its memory itself.
            self.engine.mappings.scan_wanted.store(0, Relaxed);
            return;
        }
        let now = sys::now_ns();
        let grown = self.survey.size.writable.saturating_sub(self.survey.scanned_size);
        let unchanged = self.survey.size.writable == self.survey.scanned_size;
        // Where memory is freed and mapped anew the size does not tell: near the limit the mappings
        // are looked at whatever the size says.
        let soon_ns = if short && self.survey.scans_in_vain < SCANS_IN_VAIN {
            SCAN_SHORT_NS
        } else if short {
            SCAN_SHORT_IN_VAIN_NS
        } else if unchanged {
            SCAN_UNCHANGED_NS
        } else {
            SCAN_CHANGED_NS
        };
        let wanted = self.engine.mappings.scan_wanted.swap(0, Acquire) != 0;
        if !wanted && grown < GROWTH_BYTES_MIN && now < self.survey.scan_next_ns + soon_ns {
            return;
        }
        self.survey.scanned_size = self.survey.size.writable;
        let engine = self.engine;
        engine.mappings.small_mapped.store(0, Relaxed);
        let mut filter = MappingFilter::new();
        // SAFETY: the descriptor is in the pager threads' table and stays open.
        let file = unsafe { BorrowedFd::borrow_raw(engine.descriptors.maps.load(Relaxed)) };
        let mut found_new = false;
        let _ = maps::read(file, &mut self.survey.text, |mapping| {
            if !filter.can_be_managed(mapping) {
                return;
            }
            let new = {
                let _events_wait = engine.locks.moves.lock();
                engine.register_pieces(mapping.start, mapping.end)
            };
            if let Some(new) = new {
                found_new = true;
                engine.protect_zero_pages(new.start, new.end);
            }
        });
        engine.mappings.scanned_ns.store(sys::now_ns(), Relaxed);
        futex::post(&engine.mappings.scans, Sharing::Private);
        if found_new {
            self.survey.growing_until_ns = now + GROWING_NS;
            self.survey.scans_in_vain = 0;
        } else {
            self.survey.scans_in_vain = self.survey.scans_in_vain.saturating_add(1);
        }
        let cost = sys::now_ns() - now;
        self.survey.scan_next_ns = sys::now_ns() + cost * if short { 4 } else { 20 };
    }
}

impl Engine {
    /// Registers the parts of a mapping that are neither registered nor the engine's own. Returns
    /// the range from the first to the last of them, if there was any. The caller holds the move
    /// lock.
    pub(crate) fn register_pieces(&self, start: usize, end: usize) -> Option<Range> {
        let registered = &self.mappings.registered;
        // A range that was just given up is not taken back; the next look finds the rest.
        if registered.covers(start, end) || !self.demand.lets_register() {
            return None;
        }
        let mut found = None::<Range>;
        // No own mapping of the engine can appear in the range between the look and the
        // registration.
        self.arena.with_pieces_fixed(|arena| {
            arena.for_gaps(start, end, |gap| {
                self.for_free(By::Mover, gap.start, gap.end, |free| {
                    let (new, bytes) = (registered.next_hole(free.start), free.end - free.start);
                    // An unmapping that has not been read yet would be taken for one of what lies
                    // there now, and calls would not know that it is registered.
                    if self.calls_hold() && self.userfault().check_registered(free.start) == Err(Errno::AGAIN)
                    {
                        self.mappings.scan_wanted.store(1, Release);
                        return;
                    }
                    if new >= free.end
                        || self.userfault().register(free.start, bytes, Watch::Program).is_err()
                    {
                        return;
                    }
                    if registered.insert(free.start, free.end).is_ok() {
                        found = Some(Range { start: found.map_or(new, |found| found.start), end: free.end });
                    } else if self.calls_hold() && new == free.start {
                        // SAFETY: nothing of it was registered before, so no page of it is out.
                        let _ = unsafe { self.userfault().unregister(free.start, bytes) };
                    }
                    // Elsewhere a full set leaves the range registered but unknown: its faults are
                    // served, and it is never evicted.
                });
            });
        });
        found
    }
}
