//! A trace made ready: slots of all members numbered densely, every operation sane by itself, divided among threads.
//!
//! A trace may begin in the middle and may have lost records. What frees a slot that is free, or takes one that is taken, is set right here
//! and counted ([`Odd`]), so that a replay never has to guess.

use crate::traces::Trace;
use folioswap_trace::Event;
use serde::Serialize;
use std::collections::HashMap;

const CLUSTER: u64 = 512;

/// Whether pages may keep their slots after they came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    /// As recorded.
    AsRecorded,
    /// Never, because all devices are synchronous: slots are freed at once, and what would have been reused is allocated anew.
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Alloc,
    Fallback,
    Free,
    Retain,
    Reuse,
}

/// One operation. `first` is the number of the first slot; cluster `first / 512` sees its operations in the order of `turn`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Op {
    pub(super) kind: Kind,
    pub(super) cpu: u16,
    /// A power of two for `Alloc` and `Fallback`.
    pub(super) slots: u16,
    pub(super) first: u32,
    pub(super) turn: u32,
}

/// What was set right.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Odd {
    /// Slots freed, kept or reused that the trace had not allocated.
    pub unknown_slots: u64,
    /// Slots allocated that the trace had not freed: freed by us first.
    pub taken_twice: u64,
}

/// A trace ready for a replay.
#[derive(Debug)]
pub struct Prepared {
    pub(super) ops: Vec<Op>,
    pub(super) clusters: usize,
    /// Logical CPUs.
    pub cpus: u32,
    /// Most slots held at a time.
    pub slots_peak: u64,
    /// Oddities.
    pub odd: Odd,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Slot {
    Free,
    Used,
    Kept,
    /// Would be kept, but was freed because nothing is ([`Retention::Never`]).
    Gone,
}

struct Preparation {
    ops: Vec<Op>,
    numbers: HashMap<(u32, u64), u32>,
    slots: Vec<Slot>,
    turns: Vec<u32>,
    held: u64,
    peak: u64,
    odd: Odd,
    retention: Retention,
}

/// More clusters than slot numbers have room for.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the trace names more than 8 million clusters (16 TiB of swap)")]
pub struct TooManyClusters;

impl Prepared {
    /// Cost: one pass over the trace.
    ///
    /// # Errors
    /// [`TooManyClusters`].
    pub fn new(trace: &Trace, retention: Retention) -> Result<Prepared, TooManyClusters> {
        let mut preparation = Preparation {
            ops: Vec::with_capacity(trace.records.len()),
            numbers: HashMap::new(),
            slots: Vec::new(),
            turns: Vec::new(),
            held: 0,
            peak: 0,
            odd: Odd::default(),
            retention,
        };
        let mut member = 0;
        for record in &trace.records {
            preparation.add(&mut member, record.event)?;
        }
        Ok(Prepared {
            clusters: preparation.turns.len(),
            ops: preparation.ops,
            cpus: trace.header.cpus,
            slots_peak: preparation.peak,
            odd: preparation.odd,
        })
    }

    /// Operations.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }
}

impl Preparation {
    fn add(&mut self, member: &mut u32, event: Event) -> Result<(), TooManyClusters> {
        match event {
            Event::Member { member: number } => *member = number,
            Event::End { member: number } => self.end(number),
            Event::Fallback { cpu, order } => {
                self.ops.push(Op { kind: Kind::Fallback, cpu, slots: 1 << order, first: 0, turn: 0 });
            }
            Event::Alloc { cpu, order, entry } => {
                let first = self.number(*member, entry)?;
                let slots = 1 << order;
                self.free_taken(cpu, slots, first);
                self.push(Kind::Alloc, cpu, slots, first);
            }
            Event::Free { cpu, slots, entry } => {
                let first = self.number(*member, entry)?;
                self.each(cpu, slots, first, &[Slot::Used, Slot::Kept], Kind::Free);
            }
            Event::Retain { cpu, slots, entry } => {
                let first = self.number(*member, entry)?;
                let kind = if self.retention == Retention::Never { Kind::Free } else { Kind::Retain };
                self.each(cpu, slots, first, &[Slot::Used], kind);
                if self.retention == Retention::Never {
                    self.slots[first as usize..first as usize + usize::from(slots)].fill(Slot::Gone);
                }
            }
            Event::Reuse { cpu, slots, entry } => {
                let first = self.number(*member, entry)?;
                if self.retention == Retention::Never {
                    for slot in first..first + u32::from(slots) {
                        if self.slots[slot as usize] == Slot::Gone {
                            self.push(Kind::Alloc, cpu, 1, slot);
                        }
                    }
                } else {
                    self.each(cpu, slots, first, &[Slot::Kept], Kind::Reuse);
                }
            }
        }
        Ok(())
    }

    fn number(&mut self, member: u32, entry: u64) -> Result<u32, TooManyClusters> {
        let next = self.turns.len() as u32;
        let cluster = *self.numbers.entry((member, entry / CLUSTER)).or_insert(next);
        if cluster == next {
            if next >= 1 << 23 {
                return Err(TooManyClusters);
            }
            self.turns.push(0);
            self.slots.resize(self.slots.len() + CLUSTER as usize, Slot::Free);
        }
        Ok(cluster * CLUSTER as u32 + (entry % CLUSTER) as u32)
    }

    /// Before an allocation: what the trace did not free.
    fn free_taken(&mut self, cpu: u16, slots: u16, first: u32) {
        let range = first as usize..first as usize + usize::from(slots);
        let taken =
            self.slots[range].iter().filter(|slot| matches!(slot, Slot::Used | Slot::Kept)).count() as u64;
        if taken > 0 {
            self.odd.taken_twice += taken;
            let odd = self.odd;
            self.each(cpu, slots, first, &[Slot::Used, Slot::Kept], Kind::Free);
            self.odd = odd;
        }
    }

    /// `kind` for those runs of the range that are in one of the `states`; the others are odd.
    fn each(&mut self, cpu: u16, slots: u16, first: u32, states: &[Slot], kind: Kind) {
        let end = first + u32::from(slots);
        let mut slot = first;
        while slot < end {
            let state = self.slots[slot as usize];
            let mut after = slot + 1;
            while after < end && self.slots[after as usize] == state {
                after += 1;
            }
            if states.contains(&state) {
                self.push(kind, cpu, (after - slot) as u16, slot);
            } else if state == Slot::Gone {
                self.slots[slot as usize..after as usize].fill(Slot::Free);
            } else {
                self.odd.unknown_slots += u64::from(after - slot);
            }
            slot = after;
        }
    }

    fn push(&mut self, kind: Kind, cpu: u16, slots: u16, first: u32) {
        let cluster = first as usize / CLUSTER as usize;
        let turn = self.turns[cluster];
        self.turns[cluster] += 1;
        self.ops.push(Op { kind, cpu, slots, first, turn });
        let state = match kind {
            Kind::Alloc | Kind::Reuse => Slot::Used,
            Kind::Retain => Slot::Kept,
            Kind::Free | Kind::Fallback => Slot::Free,
        };
        match kind {
            Kind::Alloc => self.held += u64::from(slots),
            Kind::Free => self.held -= u64::from(slots),
            _ => {}
        }
        self.peak = self.peak.max(self.held);
        self.slots[first as usize..first as usize + usize::from(slots)].fill(state);
    }

    fn end(&mut self, member: u32) {
        let mut clusters: Vec<u32> =
            self.numbers.iter().filter(|((of, _), _)| *of == member).map(|(_, number)| *number).collect();
        clusters.sort_unstable();
        for cluster in clusters {
            let odd = self.odd;
            self.each(0, CLUSTER as u16, cluster * CLUSTER as u32, &[Slot::Used, Slot::Kept], Kind::Free);
            self.odd = odd;
        }
    }
}
