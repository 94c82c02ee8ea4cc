//! A ring of records in memory that a recorded process shares with the process that writes the
//! file.
//!
//! Any thread of the recorded process pushes, one process drains. A push takes no lock, allocates
//! nothing and makes no system call: it reserves a cell by compare-exchange and publishes the
//! record with the store of its last word. A full ring drops the record and counts it as lost. A
//! process that is killed between reserving and publishing leaves a hole, which
//! [`Ring::drain_dead`] counts as lost too.
//!
//! ```text
//! head ........ tail            head: the next to be drained; tail: the next to be reserved
//!  |published|hole|published|   bit 63 of a cell: published (last word); drain clears
//! ```

use crate::{CPUS_MAX, Event, RECORD_BYTES, Record, TICK_MAX};
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// Records that a ring holds. They take 2 MiB, of which only the part that was used becomes
/// resident; freeing half a GiB at once fits.
pub const RING_RECORDS: usize = 1 << 17;

/// The bit that marks a cell as published. No field of a record's last word reaches it.
const PUBLISHED: u64 = 1 << 63;

#[repr(C)]
struct Cell {
    first: AtomicU64,
    last: AtomicU64,
}

/// The ring; all-zero but for [`Ring::initialise`]. Any bytes are valid, because the drain trusts
/// nothing that it finds.
#[repr(C, align(64))]
pub struct Ring<const CELLS: usize = RING_RECORDS> {
    origin_ns: AtomicU64,
    tick_ns: AtomicU32,
    cpus: AtomicU32,
    lost: AtomicU64,
    // Head and tail are on cache lines of their own.
    side: [AtomicU64; 13],
    head: AtomicU64,
    between: [AtomicU64; 15],
    tail: AtomicU64,
    behind: [AtomicU64; 15],
    cells: [Cell; CELLS],
}

/// The time and the logical CPU of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Nanoseconds on the clock of [`Ring::initialise`]'s `origin_ns`.
    pub ns: u64,
    /// Logical CPU.
    pub cpu: u32,
}

impl<const CELLS: usize> Ring<CELLS> {
    /// Bytes of memory that the ring takes.
    pub const BYTES: usize = size_of::<Self>();

    /// Makes zeroed memory a ring. The trace begins at `origin_ns` on the recorders' clock and has
    /// ticks of `tick_ns` nanoseconds (at least 1) and `cpus` logical CPUs (1 to [`CPUS_MAX`];
    /// larger CPU numbers are taken modulo this).
    pub fn initialise(&self, origin_ns: u64, tick_ns: u32, cpus: u32) {
        self.origin_ns.store(origin_ns, Relaxed);
        self.tick_ns.store(tick_ns, Relaxed);
        self.cpus.store(cpus, Release);
    }

    /// Records an event, which `event` makes from the logical CPU. Cost: some tens of nanoseconds,
    /// no system call, no lock.
    pub fn push(&self, now: Moment, event: impl FnOnce(u16) -> Event) {
        let cpus = self.cpus.load(Acquire).clamp(1, CPUS_MAX);
        let tick = now.ns.saturating_sub(self.origin_ns.load(Relaxed))
            / u64::from(self.tick_ns.load(Relaxed).max(1));
        let record = Record { tick: tick.min(TICK_MAX), event: event((now.cpu % cpus) as u16) };
        let Ok(bytes) = record.encode() else {
            debug_assert!(false, "{record:?} has no encoding");
            self.lost.fetch_add(1, Relaxed);
            return;
        };
        let Some(cell) = self.reserve() else {
            self.lost.fetch_add(1, Relaxed);
            return;
        };
        let [first, last] = words(&bytes);
        cell.first.store(first, Relaxed);
        // Pairs with the Acquire load in `drain`: a drain that sees the bit sees the first word
        // too.
        cell.last.store(last | PUBLISHED, Release);
    }

    fn reserve(&self) -> Option<&Cell> {
        let mut tail = self.tail.load(Relaxed);
        loop {
            // Acquire: the drain cleared the cell before it moved the head.
            if tail.wrapping_sub(self.head.load(Acquire)) >= CELLS as u64 {
                return None;
            }
            match self.tail.compare_exchange_weak(tail, tail.wrapping_add(1), Relaxed, Relaxed) {
                Ok(_) => return Some(&self.cells[tail as usize % CELLS]),
                Err(now) => tail = now,
            }
        }
    }

    /// Calls `each` for every published record, in the order of reservation, up to the first that
    /// is not published or that `each` refuses with [`Taken::Not`]; that record stays. Only one
    /// process may drain.
    pub fn drain(&self, mut each: impl FnMut(&[u8; RECORD_BYTES]) -> Taken) {
        for _ in 0..CELLS {
            let head = self.head.load(Relaxed);
            let cell = &self.cells[head as usize % CELLS];
            let last = cell.last.load(Acquire);
            if last & PUBLISHED == 0 {
                return;
            }
            let record = bytes([cell.first.load(Relaxed), last & !PUBLISHED]);
            if each(&record) == Taken::Not {
                return;
            }
            cell.last.store(0, Relaxed);
            self.head.store(head.wrapping_add(1), Release);
        }
    }

    /// Drains a ring whose process has ended: records that were reserved and never published are
    /// counted as lost.
    pub fn drain_dead(&self, mut each: impl FnMut(&[u8; RECORD_BYTES])) {
        let tail = self.tail.load(Relaxed);
        for _ in 0..CELLS {
            self.drain(|record| {
                each(record);
                Taken::Yes
            });
            let head = self.head.load(Relaxed);
            // The number of rounds is bounded, so that the loop also ends for a tail that no writer
            // makes.
            if head == tail || tail.wrapping_sub(head) > CELLS as u64 {
                return;
            }
            self.lost.fetch_add(1, Relaxed);
            self.head.store(head.wrapping_add(1), Release);
        }
    }

    /// Number of records that were lost.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }
}

/// Whether a record was taken out of the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It was taken.
    Yes,
    /// It stays, and so do the records after it.
    Not,
}

fn words(bytes: &[u8; RECORD_BYTES]) -> [u64; 2] {
    let value = u128::from_le_bytes(*bytes);
    [value as u64, (value >> 64) as u64]
}

fn bytes([first, last]: [u64; 2]) -> [u8; RECORD_BYTES] {
    (u128::from(first) | u128::from(last) << 64).to_le_bytes()
}

/// A ring with the clock and the CPU number of its process.
pub struct Tracer {
    ring: &'static Ring,
    moment: fn() -> Moment,
}

impl Tracer {
    /// `moment` is called at each event, by the thread that records it.
    pub fn new(ring: &'static Ring, moment: fn() -> Moment) -> Self {
        Tracer { ring, moment }
    }

    /// Records an event, as [`Ring::push`] does.
    pub fn record(&self, event: impl FnOnce(u16) -> Event) {
        self.ring.push((self.moment)(), event);
    }
}
