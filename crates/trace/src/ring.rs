//! A ring of records in memory that a recording process shares with who writes the file.
//!
//! Any thread of the process pushes, one process drains. A push takes no lock, allocates nothing and makes no system call: it reserves a place by
//! compare-exchange and publishes the record with the store of its last word. A ring that is full loses the record and counts it. A process that is
//! killed between the two leaves a hole, which [`Ring::drain_dead`] counts as lost too.
//!
//! ```text
//! head ........ tail            head: the next to be drained; tail: the next to be reserved
//!  |published|hole|published|   a place is published when bit 63 of its last word is set, and cleared by the drain
//! ```

use crate::{CPUS_MAX, Event, RECORD_BYTES, Record, TICK_MAX};
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// Records that a ring holds: 2 MiB, of which only as much becomes resident as was used. Half a GiB that is unmapped at once fits.
pub const RING_RECORDS: usize = 1 << 17;

/// No field of a record's last word reaches this bit.
const PUBLISHED: u64 = 1 << 63;

#[repr(C)]
struct Place {
    first: AtomicU64,
    last: AtomicU64,
}

/// The ring; all-zero but for [`Ring::initialise`]. Any bytes are valid: who drains believes nothing that it finds.
#[repr(C, align(64))]
pub struct Ring<const PLACES: usize = RING_RECORDS> {
    origin_ns: AtomicU64,
    tick_ns: AtomicU32,
    cpus: AtomicU32,
    lost: AtomicU64,
    // Each side on cache lines of its own.
    side: [AtomicU64; 13],
    head: AtomicU64,
    between: [AtomicU64; 15],
    tail: AtomicU64,
    behind: [AtomicU64; 15],
    places: [Place; PLACES],
}

/// When and where something happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Nanoseconds on the clock of [`Ring::initialise`].
    pub ns: u64,
    /// Logical CPU.
    pub cpu: u32,
}

impl<const PLACES: usize> Ring<PLACES> {
    /// Bytes of memory that it takes.
    pub const BYTES: usize = size_of::<Self>();

    /// Makes zeroed memory a ring for a trace that begins at `origin_ns` on the recorders' clock, in ticks of `tick_ns` nanoseconds (at least 1), on
    /// `cpus` logical CPUs (1 to [`CPUS_MAX`]; others are taken modulo this).
    pub fn initialise(&self, origin_ns: u64, tick_ns: u32, cpus: u32) {
        self.origin_ns.store(origin_ns, Relaxed);
        self.tick_ns.store(tick_ns, Relaxed);
        self.cpus.store(cpus, Release);
    }

    /// Records an event. `event` is given the logical CPU. Cost: some tens of nanoseconds, no system call, no lock.
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
        let Some(place) = self.reserve() else {
            self.lost.fetch_add(1, Relaxed);
            return;
        };
        let [first, last] = words(&bytes);
        place.first.store(first, Relaxed);
        // Pairs with the load in `take`: who sees the bit sees the first word.
        place.last.store(last | PUBLISHED, Release);
    }

    fn reserve(&self) -> Option<&Place> {
        let mut tail = self.tail.load(Relaxed);
        loop {
            // Acquire: the drain cleared the place before it moved the head.
            if tail.wrapping_sub(self.head.load(Acquire)) >= PLACES as u64 {
                return None;
            }
            match self.tail.compare_exchange_weak(tail, tail.wrapping_add(1), Relaxed, Relaxed) {
                Ok(_) => return Some(&self.places[tail as usize % PLACES]),
                Err(now) => tail = now,
            }
        }
    }

    /// Calls `each` for every published record in the order in which they were reserved, up to the first that is not published, or for which `each`
    /// answers [`Taken::Not`]; that one stays. For one process.
    pub fn drain(&self, mut each: impl FnMut(&[u8; RECORD_BYTES]) -> Taken) {
        for _ in 0..PLACES {
            let head = self.head.load(Relaxed);
            let place = &self.places[head as usize % PLACES];
            let last = place.last.load(Acquire);
            if last & PUBLISHED == 0 {
                return;
            }
            let record = bytes([place.first.load(Relaxed), last & !PUBLISHED]);
            if each(&record) == Taken::Not {
                return;
            }
            place.last.store(0, Relaxed);
            self.head.store(head.wrapping_add(1), Release);
        }
    }

    /// The same for a ring whose process has ended: what was reserved and never published is counted as lost.
    pub fn drain_dead(&self, mut each: impl FnMut(&[u8; RECORD_BYTES])) {
        let tail = self.tail.load(Relaxed);
        for _ in 0..PLACES {
            self.drain(|record| {
                each(record);
                Taken::Yes
            });
            let head = self.head.load(Relaxed);
            // A tail that no writer makes ends here too, since the rounds are counted.
            if head == tail || tail.wrapping_sub(head) > PLACES as u64 {
                return;
            }
            self.lost.fetch_add(1, Relaxed);
            self.head.store(head.wrapping_add(1), Release);
        }
    }

    /// Records that were not recorded.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }
}

/// Whether a record was taken out of the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It was.
    Yes,
    /// It shall stay, and what comes after it.
    Not,
}

fn words(bytes: &[u8; RECORD_BYTES]) -> [u64; 2] {
    let value = u128::from_le_bytes(*bytes);
    [value as u64, (value >> 64) as u64]
}

fn bytes([first, last]: [u64; 2]) -> [u8; RECORD_BYTES] {
    (u128::from(first) | u128::from(last) << 64).to_le_bytes()
}

/// A ring, and how its process tells when and where something happens.
pub struct Tracer {
    ring: &'static Ring,
    moment: fn() -> Moment,
}

impl Tracer {
    /// `moment` is asked at each event, by the thread that records it.
    pub fn new(ring: &'static Ring, moment: fn() -> Moment) -> Self {
        Tracer { ring, moment }
    }

    /// Records an event, as [`Ring::push`] does.
    pub fn record(&self, event: impl FnOnce(u16) -> Event) {
        self.ring.push((self.moment)(), event);
    }
}
