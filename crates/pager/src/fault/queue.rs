//! Faults that were read and are not served yet.

use crate::fault::unmapped::Moment;
use crate::kernel::uffd::Access;
use crate::units::PageAddr;

/// The most faults that can wait here; further ones stay in the kernel's queue.
pub(crate) const QUEUE: usize = 256;

/// A fault that was read and is not served yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    /// The page that is missing or protected.
    pub(crate) page: PageAddr,
    pub(crate) access: Access,
    /// The thread that waits.
    pub(crate) thread: u32,
    pub(crate) attempt: Attempt,
    /// The time at which the fault was read.
    pub(crate) since_ns: u64,
    /// The same among the unmappings.
    pub(crate) read_at: Moment,
}

const NO_FAULT: Fault = Fault {
    page: PageAddr::containing(0),
    access: Access::Read,
    thread: 0,
    attempt: Attempt::First,
    since_ns: 0,
    read_at: Moment::FIRST,
};

/// Whether a fault was in the queue before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// The fault has not been looked at yet.
    First,
    /// The fault has waited for a read from a file.
    AfterRead,
}

/// Whether faults had to be forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overflow {
    /// Every fault that was read is in the queue.
    No,
    /// Some faults are not in the queue: when it is empty, all threads that wait are woken, and
    /// fault again.
    Forgot,
}

/// A ring of faults, in the order in which they were read.
pub(crate) struct FaultQueue {
    faults: [Fault; QUEUE],
    first: usize,
    len: usize,
    overflow: Overflow,
}

impl FaultQueue {
    pub(crate) const fn new() -> Self {
        FaultQueue { faults: [NO_FAULT; QUEUE], first: 0, len: 0, overflow: Overflow::No }
    }

    /// The number of faults in the queue.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds a fault at the end. A thread that took a signal faults again; its fault is kept once.
    pub(crate) fn push(&mut self, fault: Fault) {
        let is_same = |other: &Fault| (other.page, other.thread) == (fault.page, fault.thread);
        if self.find(is_same).is_some() {
            return;
        }
        if self.len == QUEUE {
            self.overflow = Overflow::Forgot;
            return;
        }
        self.faults[(self.first + self.len) % QUEUE] = fault;
        self.len += 1;
    }

    /// The position of the first fault that is `wanted`.
    pub(crate) fn find(&self, wanted: impl Fn(&Fault) -> bool) -> Option<usize> {
        self.positions().find(|&position| wanted(&self.faults[position]))
    }

    /// Whether every fault is `wanted`.
    pub(crate) fn all(&self, wanted: impl Fn(&Fault) -> bool) -> bool {
        self.positions().all(|position| wanted(&self.faults[position]))
    }

    /// The position of the fault that waits longest.
    pub(crate) fn oldest(&self) -> usize {
        self.first
    }

    /// Takes the fault at this position. The faults before it keep their order, so that a fault
    /// that waits for a read stands behind those that have not been looked at yet.
    pub(crate) fn take(&mut self, mut position: usize) -> Fault {
        while position != self.first {
            let before = (position + QUEUE - 1) % QUEUE;
            self.faults.swap(position, before);
            position = before;
        }
        let fault = self.faults[self.first];
        self.first = (self.first + 1) % QUEUE;
        self.len -= 1;
        fault
    }

    /// Whether faults were forgotten whose threads are to look again when the queue is empty.
    pub(crate) fn has_forgotten(&self) -> bool {
        self.overflow == Overflow::Forgot
    }

    /// Reports once, when the queue is empty, that faults had been forgotten.
    pub(crate) fn take_overflow(&mut self) -> Overflow {
        if self.len > 0 { Overflow::No } else { core::mem::replace(&mut self.overflow, Overflow::No) }
    }

    fn positions(&self) -> impl Iterator<Item = usize> + use<> {
        let first = self.first;
        (0..self.len).map(move |offset| (first + offset) % QUEUE)
    }
}
