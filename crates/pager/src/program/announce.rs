//! Announcements: threads of the program tell of memory that comes in faster than the evictor could
//! follow. This is memory that they have just mapped and may touch at full speed, and memory that
//! the kernel is about to fill at once.

use crate::engine::Engine;
use crate::engine::threads::Life;
use crate::kernel::futex::{self, Sharing};
use crate::kernel::sys;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use folioswap_group::decisions::Scope;
use folioswap_group::segment::Member;
use folioswap_policy::reclaim::watermarks::Watermarks;

/// The intent of a program that maps memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// The program uses all of it, as far as is known.
    Whole,
    /// The program uses some of it: MAP_NORESERVE.
    Sparse,
}

/// Mappings below this are small, compared with how far the limit may be exceeded.
const MAPPED_BYTES_MIN: usize = 1 << 20;

/// After a look, small mappings are not looked at sooner than this.
const SMALL_MAPPED_NS: u64 = 3_000_000;

/// Waits of a millisecond for the evictor's look at a new mapping.
const MAPPED_WAITS: u32 = 50;

/// How long a thread waits for headroom while none comes, and how long at most.
const PATIENCE_NS: u64 = 500_000_000;

const PATIENCE_MAX_NS: u64 = 5_000_000_000;

/// The least progress that counts.
const PROGRESS_BYTES: u64 = 1 << 20;

/// Memory that is about to come in all at once. Until this is dropped, other members make headroom
/// for it.
pub struct Headroom<'a> {
    member: &'a Member,
    bytes: u64,
    process: u32,
}

impl Drop for Headroom<'_> {
    fn drop(&mut self) {
        // A child that a signal handler forked meanwhile has announced nothing.
        if self.process == sys::getpid() {
            let less = |announced: u64| Some(announced.saturating_sub(self.bytes));
            let _ = self.member.announced_bytes.fetch_update(Relaxed, Relaxed, less);
            // The memory that has come in is measured now.
            futex::post(&self.member.wake, Sharing::Shared);
        }
    }
}

/// The way in which to fill new private memory that the program wants filled at once.
pub enum Filling<'a> {
    /// By the kernel, as it was asked to; there is headroom for the memory as long as this is kept.
    AtOnce(Option<Headroom<'a>>),
    /// By the faults of the threads that touch it.
    ByFaults,
}

/// Memory that cannot be swapped out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unevictable {
    /// Shared with other processes; only scope total counts it.
    Shared,
    /// Locked.
    Locked,
}

impl Engine {
    /// Whether there is an evictor to announce to.
    fn listens(&self) -> bool {
        self.life() == Life::Running && self.is_ours()
    }

    /// Waits, for some milliseconds at most, until the evictor has looked at `bytes` that a thread
    /// of the program has just mapped and may touch at full speed, so that touched pages are
    /// counted.
    ///
    /// Returns at once for small mappings, as long as those since the last look are little together
    /// or the group has headroom. Returns at once for others while the group is far from its limit
    /// even if the thread touches all of them, or while it hardly means to.
    pub fn memory_was_mapped(&self, bytes: usize, intent: Intent) {
        let is_small = bytes < MAPPED_BYTES_MIN;
        if is_small && self.mappings.small_mapped.fetch_add(bytes, Relaxed) + bytes < MAPPED_BYTES_MIN {
            return;
        }
        if !self.listens() {
            return;
        }
        let group = self.group();
        let watermarks = Watermarks::of(group.decisions.limit_bytes());
        if is_small {
            self.mappings.small_mapped.store(0, Relaxed);
            let scanned_ns = self.mappings.scanned_ns.load(Relaxed);
            // A thread that maps and unmaps the same memory again and again does not wait each
            // time.
            if group.charge_bytes() < watermarks.low || sys::now_ns() < scanned_ns + SMALL_MAPPED_NS {
                return;
            }
        }
        let is_far = || group.charge_bytes().saturating_add(bytes as u64) < watermarks.engage;
        if !self.is_engaged() && (intent == Intent::Sparse || is_far()) {
            return;
        }
        let seen = self.mappings.scans.load(Acquire);
        self.mappings.scan_wanted.store(1, Release);
        self.wake_evictor();
        for _ in 0..MAPPED_WAITS {
            // While a fork is being prepared the evictor stands still, perhaps for this very
            // thread.
            if self.mappings.scans.load(Acquire) != seen || self.fork.is_preparing() {
                return;
            }
            futex::wait(&self.mappings.scans, seen, 1_000_000, Sharing::Private);
        }
    }

    fn announce(&self, bytes: u64) -> Headroom<'_> {
        let member = self.member();
        member.announced_bytes.fetch_add(bytes, Relaxed);
        Headroom { member, bytes, process: sys::getpid() }
    }

    /// Decides whether the kernel may fill `bytes` of new private memory at once (MAP_POPULATE). It
    /// may only while the group is far from its limit even then: such pages come without faults,
    /// which could wait.
    pub fn filling(&self, bytes: usize) -> Filling<'_> {
        if !self.listens() || bytes < MAPPED_BYTES_MIN && !self.is_engaged() {
            return Filling::AtOnce(None);
        }
        let (group, bytes) = (self.group(), bytes as u64);
        let watermarks = Watermarks::of(group.decisions.limit_bytes());
        if bytes >= watermarks.engage {
            return Filling::ByFaults;
        }
        // Announce first, then look: of two threads that come together, one sees the other.
        let headroom = self.announce(bytes);
        let is_far = group.charge_bytes().saturating_add(group.announced_bytes()) < watermarks.engage;
        if is_far { Filling::AtOnce(Some(headroom)) } else { Filling::ByFaults }
    }

    /// Waits until others have made headroom for `bytes` of memory that cannot be swapped out, and
    /// that a thread of the program is about to take all at once. Waits as long as there is
    /// progress (5 s at most). Returns `None` when there is nothing to wait for.
    pub fn make_room(&self, bytes: usize, kind: Unevictable) -> Option<Headroom<'_>> {
        if bytes < MAPPED_BYTES_MIN || !self.listens() {
            return None;
        }
        let (group, bytes) = (self.group(), bytes as u64);
        let limit = group.decisions.limit_bytes();
        let is_counted = kind == Unevictable::Locked || group.decisions.scope() == Scope::Total;
        // For more than the limit there cannot be headroom. The consequence is reported when the
        // memory has come in.
        if bytes > limit || !is_counted {
            return None;
        }
        let headroom = self.announce(bytes);
        let began_ns = sys::now_ns();
        let (mut least, mut since_ns) = (u64::MAX, began_ns);
        self.wait_for_charge(|charge, now| {
            let total = charge.saturating_add(group.announced_bytes());
            if total < least.saturating_sub(PROGRESS_BYTES) {
                (least, since_ns) = (total, now);
            }
            let is_over = now - since_ns >= PATIENCE_NS || now - began_ns >= PATIENCE_MAX_NS;
            total <= limit || is_over || self.fork.is_preparing()
        });
        Some(headroom)
    }

    /// Makes a thread of the program wait while evictors work, until the group's charge and the
    /// time (nanoseconds of CLOCK_MONOTONIC) that it sees are enough.
    pub(crate) fn wait_for_charge(&self, mut is_enough: impl FnMut(u64, u64) -> bool) {
        let (group, me) = (self.group(), self.member());
        let sank = &group.segment.header.charge_sank;
        loop {
            let observed = sank.load(Acquire);
            if is_enough(group.charge_bytes(), sys::now_ns()) {
                return;
            }
            futex::post(&me.wake, Sharing::Shared);
            futex::wait(sank, observed, 1_000_000, Sharing::Shared);
        }
    }
}

#[cfg(test)]
mod tests;
