//! Prepares a trace for a replay: slots of all members are numbered densely, and every operation is
//! valid by itself.
//!
//! A forked member holds its parent's slots under the same entries; such a slot is free when the
//! last holder has freed it. A trace may begin in the middle and may have lost records. A record
//! that frees a free slot or takes a taken one is therefore corrected here and counted ([`Odd`]),
//! so that a replay never has to guess.

use crate::allocator::CLUSTER;
use crate::traces::Trace;
use folioswap_trace::{Cause, Event, Header, Record};
use serde::Serialize;
use std::collections::HashMap;

/// Whether pages may keep their slots after they came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    /// As recorded.
    AsRecorded,
    /// Never, because all devices are synchronous: slots are freed at once, and slots that the
    /// recording reused are allocated anew.
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpKind {
    Alloc,
    Fallback,
    Free,
    Retain,
    Reuse,
}

/// One operation. `first` is the number of its first slot. The operations of a cluster (`first /
/// 512`) are replayed in the order of `sequence`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Op {
    pub(super) kind: OpKind,
    /// Why slots become free; [`Cause::Unknown`] for the rest.
    pub(super) cause: Cause,
    pub(super) cpu: u16,
    /// A power of two for `Alloc` and `Fallback`.
    pub(super) slots: u16,
    pub(super) first: u32,
    pub(super) sequence: u32,
}

/// Corrections that were made to a trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Odd {
    /// Slots freed, kept or reused that the trace had not allocated.
    pub unknown_slots: u64,
    /// Slots allocated that the trace had not freed; they are freed first.
    pub taken_twice: u64,
}

/// A trace ready for a replay.
#[derive(Debug)]
pub struct Prepared {
    pub(super) ops: Vec<Op>,
    /// The tick of each operation; empty unless asked for by [`Prepared::timed`].
    pub(super) ticks: Vec<u64>,
    /// Nanoseconds of a tick.
    pub(super) tick_ns: u32,
    pub(super) clusters: usize,
    ops_to_peak: usize,
    /// Logical CPUs.
    pub cpus: u32,
    /// Peak of the slots held at a time.
    pub slots_peak: u64,
    /// Corrections.
    pub odd: Odd,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SlotState {
    Free,
    Used,
    Kept,
    /// The page came back and would keep the slot, but the slot was freed ([`Retention::Never`]).
    Gone,
}

/// The slots behind a member's entries of one cluster.
struct EntryMap {
    /// The cluster from which the member's allocations here get their slots.
    own: Option<u32>,
    /// The slot behind each entry; [`NONE`] where the member holds nothing.
    slots: Box<[u32; CLUSTER as usize]>,
}

const NONE: u32 = u32::MAX;

impl EntryMap {
    fn new() -> Self {
        EntryMap { own: None, slots: Box::new([NONE; CLUSTER as usize]) }
    }
}

pub(super) struct Preparation {
    ops: Vec<Op>,
    ticks: Option<Vec<u64>>,
    cause: Cause,
    members: HashMap<u32, HashMap<u64, EntryMap>>,
    slots: Vec<SlotState>,
    /// Number of members that hold each slot.
    holders: Vec<u32>,
    /// Slots that ever had several holders: a holder that keeps or reuses such a slot says nothing.
    ever_shared: Vec<bool>,
    /// Sequence number of the next operation of each cluster.
    next: Vec<u32>,
    /// Clusters without entries of any member.
    spare: Vec<u32>,
    held: u64,
    peak: u64,
    ops_to_peak: usize,
    odd: Odd,
    retention: Retention,
}

/// The trace names more clusters than slot numbers have room for.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the trace names more than 8 million clusters (16 TiB of swap)")]
pub struct TooManyClusters;

impl Prepared {
    /// Prepares a trace. Cost: one pass over it.
    ///
    /// # Errors
    /// [`TooManyClusters`].
    pub fn new(trace: &Trace, retention: Retention) -> Result<Prepared, TooManyClusters> {
        let mut preparation = Preparation::new(trace.records.len(), retention);
        preparation.add_all(trace)?;
        Ok(preparation.finish(&trace.header))
    }

    /// As [`new`](Self::new), with the time of each operation, which a simulation needs.
    ///
    /// # Errors
    /// [`TooManyClusters`].
    pub fn timed(trace: &Trace, retention: Retention) -> Result<Prepared, TooManyClusters> {
        let mut preparation = Preparation::new(trace.records.len(), retention);
        preparation.ticks = Some(Vec::new());
        preparation.add_all(trace)?;
        Ok(preparation.finish(&trace.header))
    }
}

impl Preparation {
    fn add_all(&mut self, trace: &Trace) -> Result<(), TooManyClusters> {
        let mut member = 0;
        for (index, record) in trace.records.iter().enumerate() {
            let cause = trace.details.get(index).map_or(Cause::Unknown, |details| details.cause);
            self.add_for(cause, &mut member, record)?;
        }
        Ok(())
    }
}

impl Prepared {
    /// Cuts the operations off where the peak of held slots is first reached.
    #[must_use]
    pub fn until_the_peak(mut self) -> Prepared {
        self.ops.truncate(self.ops_to_peak);
        self.ticks.truncate(self.ops_to_peak);
        self
    }

    /// Number of different orders that are allocated.
    pub fn orders(&self) -> usize {
        let allocs = self.ops.iter().filter(|op| op.kind == OpKind::Alloc);
        allocs.fold(0u16, |seen, op| seen | op.slots).count_ones() as usize
    }

    /// Number of operations.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether there is no operation.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }
}

impl Preparation {
    /// Begins, for about `records` records.
    pub(super) fn new(records: usize, retention: Retention) -> Preparation {
        Preparation {
            ops: Vec::with_capacity(records),
            ticks: None,
            cause: Cause::Unknown,
            members: HashMap::new(),
            slots: Vec::new(),
            holders: Vec::new(),
            ever_shared: Vec::new(),
            next: Vec::new(),
            spare: Vec::new(),
            held: 0,
            peak: 0,
            ops_to_peak: 0,
            odd: Odd::default(),
            retention,
        }
    }

    /// Adds a record that has this cause.
    pub(super) fn add_for(
        &mut self,
        cause: Cause,
        member: &mut u32,
        record: &Record,
    ) -> Result<(), TooManyClusters> {
        self.cause = cause;
        self.add(member, record.event)?;
        if let Some(ticks) = &mut self.ticks {
            ticks.resize(self.ops.len(), record.tick);
        }
        Ok(())
    }

    /// Ends, for a trace with this header.
    pub(super) fn finish(self, header: &Header) -> Prepared {
        Prepared {
            ticks: self.ticks.unwrap_or_default(),
            tick_ns: header.tick_ns,
            clusters: self.next.len(),
            ops_to_peak: self.ops_to_peak,
            ops: self.ops,
            cpus: header.cpus,
            slots_peak: self.peak,
            odd: self.odd,
        }
    }

    pub(super) fn add(&mut self, member: &mut u32, event: Event) -> Result<(), TooManyClusters> {
        match event {
            Event::Member { member: number } => *member = number,
            Event::End { member: number } => self.end(number),
            Event::Fork { member: child } => self.fork(*member, child),
            Event::Fallback { cpu, order } => {
                let cause = Cause::Unknown;
                let op = Op { kind: OpKind::Fallback, cause, cpu, slots: 1 << order, first: 0, sequence: 0 };
                self.ops.push(op);
            }
            Event::Alloc { cpu, order, entry } => self.alloc(*member, cpu, 1 << order, entry)?,
            Event::Free { cpu, slots, entry } => self.free(*member, cpu, slots, entry),
            Event::Retain { cpu, slots, entry } => self.change(*member, cpu, slots, entry, OpKind::Retain),
            Event::Reuse { cpu, slots, entry } => self.change(*member, cpu, slots, entry, OpKind::Reuse),
        }
        Ok(())
    }

    fn new_cluster(&mut self) -> Result<u32, TooManyClusters> {
        if let Some(cluster) = self.spare.pop() {
            return Ok(cluster);
        }
        let next = self.next.len() as u32;
        if next >= 1 << 23 {
            return Err(TooManyClusters);
        }
        self.next.push(0);
        let slots = self.next.len() * CLUSTER as usize;
        self.slots.resize(slots, SlotState::Free);
        self.holders.resize(slots, 0);
        self.ever_shared.resize(slots, false);
        Ok(next)
    }

    /// The slots behind the member's entries of `entry`'s cluster.
    fn entries(&mut self, member: u32, entry: u64) -> &mut EntryMap {
        self.members.entry(member).or_default().entry(entry / CLUSTER).or_insert_with(EntryMap::new)
    }

    fn alloc(&mut self, member: u32, cpu: u16, slots: u16, entry: u64) -> Result<(), TooManyClusters> {
        // Slots that the trace did not free are freed first.
        let taken = self.slots_of(member, slots, entry).filter(|slot| *slot != NONE).count() as u64;
        if taken > 0 {
            self.odd.taken_twice += taken;
            let odd = self.odd;
            self.free(member, cpu, slots, entry);
            self.odd = odd;
        }
        let offset = (entry % CLUSTER) as u32;
        let slot_in = |cluster: u32| cluster * CLUSTER as u32 + offset;
        let mut own = self.entries(member, entry).own;
        // A relative may still hold a slot that this member has freed: then the next allocation
        // gets another one.
        own = own.filter(|own| {
            let first = slot_in(*own) as usize;
            self.holders[first..first + usize::from(slots)].iter().all(|holders| *holders == 0)
        });
        let own = match own {
            Some(own) => own,
            None => self.new_cluster()?,
        };
        let first = slot_in(own);
        let entries = self.entries(member, entry);
        entries.own = Some(own);
        for (entry, slot) in entries.slots[offset as usize..].iter_mut().zip(first..first + u32::from(slots))
        {
            *entry = slot;
        }
        let range = first as usize..first as usize + usize::from(slots);
        self.holders[range.clone()].fill(1);
        self.ever_shared[range].fill(false);
        self.push(OpKind::Alloc, cpu, slots, first);
        Ok(())
    }

    /// The slots behind a range of a member's entries.
    fn slots_of(&mut self, member: u32, slots: u16, entry: u64) -> impl Iterator<Item = u32> + use<> {
        let offset = (entry % CLUSTER) as usize;
        let entries = self.entries(member, entry);
        let range: Vec<u32> = entries.slots[offset..offset + usize::from(slots)].to_vec();
        range.into_iter()
    }

    fn free(&mut self, member: u32, cpu: u16, slots: u16, entry: u64) {
        let offset = (entry % CLUSTER) as usize;
        let mut free = Vec::new();
        for slot in self.slots_of(member, slots, entry) {
            if slot == NONE {
                self.odd.unknown_slots += 1;
                continue;
            }
            let holders = &mut self.holders[slot as usize];
            *holders -= 1;
            if *holders > 0 {
                continue;
            }
            if self.slots[slot as usize] == SlotState::Gone {
                self.slots[slot as usize] = SlotState::Free;
            } else {
                free.push(slot);
            }
        }
        self.entries(member, entry).slots[offset..offset + usize::from(slots)].fill(NONE);
        self.push_runs(OpKind::Free, cpu, &free);
    }

    /// Slots become only cached, or are used again from there.
    fn change(&mut self, member: u32, cpu: u16, slots: u16, entry: u64, kind: OpKind) {
        let (mut changed, mut anew) = (Vec::new(), Vec::new());
        for slot in self.slots_of(member, slots, entry) {
            let state = if slot == NONE { SlotState::Free } else { self.slots[slot as usize] };
            match (kind, state) {
                (OpKind::Reuse, SlotState::Gone) => anew.push(slot),
                (OpKind::Reuse, SlotState::Kept) => changed.push(slot),
                (OpKind::Retain, SlotState::Used) if self.holders[slot as usize] == 1 => changed.push(slot),
                _ if slot != NONE && self.ever_shared[slot as usize] => {}
                _ => self.odd.unknown_slots += 1,
            }
        }
        for slot in anew {
            self.push(OpKind::Alloc, cpu, 1, slot);
        }
        if kind == OpKind::Retain && self.retention == Retention::Never {
            self.push_runs(OpKind::Free, cpu, &changed);
            changed.iter().for_each(|slot| self.slots[*slot as usize] = SlotState::Gone);
        } else {
            self.push_runs(kind, cpu, &changed);
        }
    }

    /// Gives `child` all slots that `parent` holds.
    fn fork(&mut self, parent: u32, child: u32) {
        self.end(child);
        let mut inherited = HashMap::new();
        for (cluster, entries) in self.members.get(&parent).into_iter().flatten() {
            let mut any = false;
            for slot in entries.slots.iter().filter(|slot| **slot != NONE) {
                self.holders[*slot as usize] += 1;
                self.ever_shared[*slot as usize] = true;
                any = true;
            }
            if any {
                inherited.insert(*cluster, EntryMap { own: None, slots: entries.slots.clone() });
            }
        }
        self.members.insert(child, inherited);
    }

    /// Gives up all slots that the member holds.
    fn end(&mut self, member: u32) {
        let mut clusters: Vec<u64> =
            self.members.get(&member).into_iter().flatten().map(|(c, _)| *c).collect();
        clusters.sort_unstable();
        let odd = self.odd;
        for cluster in clusters {
            self.free(member, 0, CLUSTER as u16, cluster * CLUSTER);
            if let Some(own) = self.entries(member, cluster * CLUSTER).own {
                let first = own as usize * CLUSTER as usize;
                let unused =
                    self.holders[first..first + CLUSTER as usize].iter().all(|holders| *holders == 0);
                // A cluster that this member left for another one (see `alloc`) is not remembered,
                // and stays unused.
                if unused {
                    self.spare.push(own);
                }
            }
        }
        self.odd = odd;
        self.members.remove(&member);
    }

    /// Adds one operation for each run of neighbouring slots.
    fn push_runs(&mut self, kind: OpKind, cpu: u16, slots: &[u32]) {
        let next_to = |a: &u32, b: &u32| a + 1 == *b && !b.is_multiple_of(CLUSTER as u32);
        for run in slots.chunk_by(next_to) {
            self.push(kind, cpu, run.len() as u16, run[0]);
        }
    }

    fn push(&mut self, kind: OpKind, cpu: u16, slots: u16, first: u32) {
        let cluster = first as usize / CLUSTER as usize;
        let sequence = self.next[cluster];
        self.next[cluster] += 1;
        self.ops.push(Op { kind, cause: self.cause, cpu, slots, first, sequence });
        let state = match kind {
            OpKind::Alloc | OpKind::Reuse => SlotState::Used,
            OpKind::Retain => SlotState::Kept,
            OpKind::Free | OpKind::Fallback => SlotState::Free,
        };
        match kind {
            OpKind::Alloc => self.held += u64::from(slots),
            OpKind::Free => self.held -= u64::from(slots),
            _ => {}
        }
        if self.held > self.peak {
            (self.peak, self.ops_to_peak) = (self.held, self.ops.len());
        }
        self.slots[first as usize..first as usize + usize::from(slots)].fill(state);
    }
}
