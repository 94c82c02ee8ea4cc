//! One process of a group.

use crate::processes::proc;
use folioswap_group::{
    counters::{Counter, Gauge},
    seat::Seat,
    segment::Member,
};
use serde::Serialize;

/// A managed process at one moment. Figures are what the process says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemberView {
    /// The process id.
    pub pid: u32,
    /// The name of its program (comm), printable.
    pub name: String,
    /// The state letter of `/proc/PID/status`.
    pub state: char,
    /// Its weight: the more, the more it keeps where all are busy.
    pub weight: u32,
    /// The bytes of it that count towards the limit.
    pub charge_bytes: u64,
    /// Its anonymous memory that is in RAM, in bytes.
    pub resident_bytes: u64,
    /// Its memory that is swapped out, in bytes.
    pub swapped_bytes: u64,
    /// Its compressed store, in bytes of RAM.
    pub store_bytes: u64,
    /// Pages that it wrote to swap.
    pub pages_out: u64,
    /// Pages that came back.
    pub pages_in: u64,
    /// Pages that came back after a known time away.
    pub refaults: u64,
    /// Nanoseconds that its threads have waited for pages, added up.
    pub wait_ns: u64,
    /// Nanoseconds of processor time of its pager threads.
    pub pager_ns: u64,
}

impl MemberView {
    pub(super) fn read(seat: &Seat, member: &Member) -> Self {
        let pid = seat.pid();
        let status = proc::status(pid);
        let (name, state) =
            status.map_or_else(|| ("?".to_owned(), '?'), |status| (status.name, status.state));
        let figures = &member.figures;
        MemberView {
            pid,
            name,
            state,
            weight: seat.weight(),
            charge_bytes: member.charge(),
            resident_bytes: figures.gauge(Gauge::Resident),
            swapped_bytes: figures.gauge(Gauge::Swapped),
            store_bytes: figures.gauge(Gauge::MemUsedTotal),
            pages_out: figures.counter(Counter::PagesOut),
            pages_in: figures.counter(Counter::PagesIn),
            refaults: figures.counter(Counter::WorkingsetRefault),
            wait_ns: figures.counter(Counter::FaultNanoseconds),
            pager_ns: figures.counter(Counter::PagerNanoseconds),
        }
    }
}
