//! What threads of the program say of memory that comes in faster than anybody could follow: what they have just mapped and may touch at
//! full speed, and what the kernel is about to fill at once.

use crate::engine::{Engine, Life};
use crate::futex::{self, Sharing};
use crate::sys;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use folioswap_core::reclaim::watermarks::Watermarks;

/// What a program that maps memory means to do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// To use it all, as far as anybody knows.
    Whole,
    /// To use some of it: MAP_NORESERVE.
    Sparse,
}

/// Mappings below this are small against what the limit may be exceeded by.
const MAPPED_BYTES_MIN: usize = 1 << 20;
/// Small mappings are not looked at sooner after the last look.
const SMALL_MAPPED_NS: u64 = 3_000_000;
/// Waits of a millisecond for the evictor's look at a new mapping.
const MAPPED_WAITS: u32 = 50;
/// How long a thread waits for room while there is none to be had.
const PATIENCE_NS: u64 = 500_000_000;

/// Room that was made for memory which is about to come in all at once; until this is dropped it counts as taken.
pub struct Room<'a> {
    engine: &'a Engine,
    bytes: u64,
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.engine.announced.fetch_sub(self.bytes, Relaxed);
        // What has come in is counted from now on.
        futex::post(&self.engine.member().wake, Sharing::Shared);
    }
}

impl Engine {
    /// Is there somebody to announce it to?
    fn listens(&self) -> bool {
        self.life() == Life::Running && self.is_ours()
    }

    /// A thread of the program has just mapped `bytes` that it may touch at full speed: waits, for some milliseconds at
    /// most, until the evictor has looked at them, so that what is touched is counted. Returns at once for small pieces, as long
    /// as those since the last look are little together or the group has room, and for others while the group is far from its
    /// limit even if it touches all of that, or hardly means to.
    pub fn memory_was_mapped(&self, bytes: usize, intent: Intent) {
        let is_small = bytes < MAPPED_BYTES_MIN;
        if is_small && self.small_mapped.fetch_add(bytes, Relaxed) + bytes < MAPPED_BYTES_MIN {
            return;
        }
        if !self.listens() {
            return;
        }
        let segment = self.segment();
        let marks = Watermarks::of(segment.header.limit_bytes.load(Relaxed));
        if is_small {
            self.small_mapped.store(0, Relaxed);
            let scanned_ns = self.scanned_ns.load(Relaxed);
            // Who opens and closes the same memory again and again does not wait each time.
            if segment.charge_bytes() < marks.low || sys::now_ns() < scanned_ns + SMALL_MAPPED_NS {
                return;
            }
        }
        let is_far = || segment.charge_bytes() + (bytes as u64) < marks.engage;
        if !self.is_engaged() && (intent == Intent::Sparse || is_far()) {
            return;
        }
        let seen = self.scans.load(Acquire);
        self.scan_wanted.store(1, Release);
        futex::post(&self.member().wake, Sharing::Shared);
        for _ in 0..MAPPED_WAITS {
            // While a fork is being prepared the evictor stands still, perhaps for this very thread.
            if self.scans.load(Acquire) != seen || self.fork.is_preparing() {
                return;
            }
            futex::wait(&self.scans, seen, 1_000_000, Sharing::Private);
        }
    }

    /// May the kernel fill `bytes` of new private memory at once (MAP_POPULATE)? Only while the group is far from its limit even then: such
    /// pages come without faults, which could wait. What may come in is counted at once.
    pub fn may_fill_at_once(&self, bytes: usize) -> bool {
        if bytes < MAPPED_BYTES_MIN || !self.listens() {
            return true;
        }
        let segment = self.segment();
        let marks = Watermarks::of(segment.header.limit_bytes.load(Relaxed));
        let is_far = segment.charge_bytes() + (bytes as u64) < marks.engage;
        if is_far {
            // Until the next measurement, which finds what is there by then.
            self.member().charge_bytes.fetch_add(bytes as u64, Relaxed);
        }
        is_far
    }

    /// A thread of the program is about to take `bytes` of memory that cannot be swapped out (shared, locked), all at once: waits until the
    /// others have made room for it, as long as that goes on. `None`: nothing needs to be waited for.
    pub fn make_room(&self, bytes: usize) -> Option<Room<'_>> {
        if bytes < MAPPED_BYTES_MIN || !self.listens() {
            return None;
        }
        let (segment, me, bytes) = (self.segment(), self.member(), bytes as u64);
        let limit = segment.header.limit_bytes.load(Relaxed);
        if bytes > limit {
            // There cannot be room. What comes of it is said when it has come in.
            return None;
        }
        self.announced_above.store(self.shmem.load(Relaxed), Relaxed);
        self.announced.fetch_add(bytes, Relaxed);
        let room = Room { engine: self, bytes };
        me.charge_bytes.fetch_add(bytes, Relaxed);
        let (mut least, mut since_ns) = (u64::MAX, sys::now_ns());
        loop {
            let observed = segment.header.charge_sank.load(Acquire);
            let (total, now) = (segment.charge_bytes(), sys::now_ns());
            if total < least {
                (least, since_ns) = (total, now);
            }
            if total <= limit || now - since_ns >= PATIENCE_NS || self.fork.is_preparing() {
                return Some(room);
            }
            futex::post(&me.wake, Sharing::Shared);
            futex::wait(&segment.header.charge_sank, observed, 1_000_000, Sharing::Shared);
        }
    }

    /// Bytes that are announced and have not come in yet, when `shmem` is the shared memory that the limit counts now. (What is locked is
    /// counted twice for some milliseconds.)
    pub(crate) fn announced_beyond(&self, shmem: u64) -> u64 {
        let came = shmem.saturating_sub(self.announced_above.load(Relaxed));
        self.announced.load(Relaxed).saturating_sub(came)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_memory;

    #[test]
    fn what_has_come_in_is_not_counted_as_announced_too() {
        let engine = test_memory::engine();
        assert_eq!(engine.announced_beyond(7), 0);
        engine.announced_above.store(10, Relaxed);
        engine.announced.store(100, Relaxed);
        assert_eq!([0, 10, 40, 110, 200].map(|shmem| engine.announced_beyond(shmem)), [100, 100, 70, 0, 0]);
    }

    #[test]
    fn nobody_waits_for_an_engine_that_does_not_run() {
        let engine = test_memory::engine();
        assert!(engine.may_fill_at_once(1 << 40) && engine.make_room(1 << 40).is_none());
    }
}
