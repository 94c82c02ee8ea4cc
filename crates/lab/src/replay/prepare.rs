//! A trace made ready: slots of all members numbered densely, every operation sane by itself, divided among threads.
//!
//! A forked member holds its parent's slots under the same entries; such a slot is free when the last holder has freed it.
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
    ops_to_peak: usize,
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

/// What a member's entries of one cluster stand for.
struct Names {
    /// The cluster of slots that its allocations here get.
    own: Option<u32>,
    /// The slot behind each entry; [`NONE`]: it holds nothing there.
    slots: Box<[u32; CLUSTER as usize]>,
}

const NONE: u32 = u32::MAX;

impl Names {
    fn new() -> Self {
        Names { own: None, slots: Box::new([NONE; CLUSTER as usize]) }
    }
}

struct Preparation {
    ops: Vec<Op>,
    members: HashMap<u32, HashMap<u64, Names>>,
    slots: Vec<Slot>,
    /// Members that hold each slot.
    holders: Vec<u32>,
    /// Slots that ever had several holders: what one of them keeps or reuses says nothing then.
    shared: Vec<bool>,
    turns: Vec<u32>,
    /// Clusters that nobody names any more.
    spare: Vec<u32>,
    held: u64,
    peak: u64,
    ops_to_peak: usize,
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
            members: HashMap::new(),
            slots: Vec::new(),
            holders: Vec::new(),
            shared: Vec::new(),
            turns: Vec::new(),
            spare: Vec::new(),
            held: 0,
            peak: 0,
            ops_to_peak: 0,
            odd: Odd::default(),
            retention,
        };
        let mut member = 0;
        for record in &trace.records {
            preparation.add(&mut member, record.event)?;
        }
        Ok(Prepared {
            clusters: preparation.turns.len(),
            ops_to_peak: preparation.ops_to_peak,
            ops: preparation.ops,
            cpus: trace.header.cpus,
            slots_peak: preparation.peak,
            odd: preparation.odd,
        })
    }

    /// Only what happens until the most slots are held for the first time.
    #[must_use]
    pub fn until_the_peak(mut self) -> Prepared {
        self.ops.truncate(self.ops_to_peak);
        self
    }

    /// Different orders that are asked for.
    pub fn orders(&self) -> usize {
        let allocs = self.ops.iter().filter(|op| op.kind == Kind::Alloc);
        allocs.fold(0u16, |seen, op| seen | op.slots).count_ones() as usize
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
            Event::Fork { member: child } => self.fork(*member, child),
            Event::Fallback { cpu, order } => {
                self.ops.push(Op { kind: Kind::Fallback, cpu, slots: 1 << order, first: 0, turn: 0 });
            }
            Event::Alloc { cpu, order, entry } => self.alloc(*member, cpu, 1 << order, entry)?,
            Event::Free { cpu, slots, entry } => self.free(*member, cpu, slots, entry),
            Event::Retain { cpu, slots, entry } => self.change(*member, cpu, slots, entry, Kind::Retain),
            Event::Reuse { cpu, slots, entry } => self.change(*member, cpu, slots, entry, Kind::Reuse),
        }
        Ok(())
    }

    fn new_cluster(&mut self) -> Result<u32, TooManyClusters> {
        if let Some(cluster) = self.spare.pop() {
            return Ok(cluster);
        }
        let next = self.turns.len() as u32;
        if next >= 1 << 23 {
            return Err(TooManyClusters);
        }
        self.turns.push(0);
        let slots = self.turns.len() * CLUSTER as usize;
        self.slots.resize(slots, Slot::Free);
        self.holders.resize(slots, 0);
        self.shared.resize(slots, false);
        Ok(next)
    }

    /// What a member's entries of a cluster stand for.
    fn names(&mut self, member: u32, entry: u64) -> &mut Names {
        self.members.entry(member).or_default().entry(entry / CLUSTER).or_insert_with(Names::new)
    }

    fn alloc(&mut self, member: u32, cpu: u16, slots: u16, entry: u64) -> Result<(), TooManyClusters> {
        // What the trace did not free.
        let taken = self.named(member, slots, entry).filter(|slot| *slot != NONE).count() as u64;
        if taken > 0 {
            self.odd.taken_twice += taken;
            let odd = self.odd;
            self.free(member, cpu, slots, entry);
            self.odd = odd;
        }
        let offset = (entry % CLUSTER) as u32;
        let place = |cluster: u32| cluster * CLUSTER as u32 + offset;
        let mut own = self.names(member, entry).own;
        // A relative may still hold what this member has freed: then its next allocation is not that slot.
        own = own.filter(|own| {
            let first = place(*own) as usize;
            self.holders[first..first + usize::from(slots)].iter().all(|holders| *holders == 0)
        });
        let own = match own {
            Some(own) => own,
            None => self.new_cluster()?,
        };
        let first = place(own);
        let names = self.names(member, entry);
        names.own = Some(own);
        for (place, slot) in names.slots[offset as usize..].iter_mut().zip(first..first + u32::from(slots)) {
            *place = slot;
        }
        let range = first as usize..first as usize + usize::from(slots);
        self.holders[range.clone()].fill(1);
        self.shared[range].fill(false);
        self.push(Kind::Alloc, cpu, slots, first);
        Ok(())
    }

    /// The slots behind a range of a member's entries.
    fn named(&mut self, member: u32, slots: u16, entry: u64) -> impl Iterator<Item = u32> + use<> {
        let offset = (entry % CLUSTER) as usize;
        let names = self.names(member, entry);
        let range: Vec<u32> = names.slots[offset..offset + usize::from(slots)].to_vec();
        range.into_iter()
    }

    fn free(&mut self, member: u32, cpu: u16, slots: u16, entry: u64) {
        let offset = (entry % CLUSTER) as usize;
        let mut free = Vec::new();
        for slot in self.named(member, slots, entry) {
            if slot == NONE {
                self.odd.unknown_slots += 1;
                continue;
            }
            let holders = &mut self.holders[slot as usize];
            *holders -= 1;
            if *holders > 0 {
                continue;
            }
            if self.slots[slot as usize] == Slot::Gone {
                self.slots[slot as usize] = Slot::Free;
            } else {
                free.push(slot);
            }
        }
        self.names(member, entry).slots[offset..offset + usize::from(slots)].fill(NONE);
        self.push_runs(Kind::Free, cpu, &free);
    }

    /// Slots become only cached, or are used again from there.
    fn change(&mut self, member: u32, cpu: u16, slots: u16, entry: u64, kind: Kind) {
        let (mut changed, mut anew) = (Vec::new(), Vec::new());
        for slot in self.named(member, slots, entry) {
            let state = if slot == NONE { Slot::Free } else { self.slots[slot as usize] };
            match (kind, state) {
                (Kind::Reuse, Slot::Gone) => anew.push(slot),
                (Kind::Reuse, Slot::Kept) => changed.push(slot),
                (Kind::Retain, Slot::Used) if self.holders[slot as usize] == 1 => changed.push(slot),
                _ if slot != NONE && self.shared[slot as usize] => {}
                _ => self.odd.unknown_slots += 1,
            }
        }
        for slot in anew {
            self.push(Kind::Alloc, cpu, 1, slot);
        }
        if kind == Kind::Retain && self.retention == Retention::Never {
            self.push_runs(Kind::Free, cpu, &changed);
            changed.iter().for_each(|slot| self.slots[*slot as usize] = Slot::Gone);
        } else {
            self.push_runs(kind, cpu, &changed);
        }
    }

    /// `child` holds what `parent` holds.
    fn fork(&mut self, parent: u32, child: u32) {
        self.end(child);
        let mut inherited = HashMap::new();
        for (cluster, names) in self.members.get(&parent).into_iter().flatten() {
            let mut any = false;
            for slot in names.slots.iter().filter(|slot| **slot != NONE) {
                self.holders[*slot as usize] += 1;
                self.shared[*slot as usize] = true;
                any = true;
            }
            if any {
                inherited.insert(*cluster, Names { own: None, slots: names.slots.clone() });
            }
        }
        self.members.insert(child, inherited);
    }

    /// All that the member holds is given up.
    fn end(&mut self, member: u32) {
        let mut clusters: Vec<u64> =
            self.members.get(&member).into_iter().flatten().map(|(c, _)| *c).collect();
        clusters.sort_unstable();
        let odd = self.odd;
        for cluster in clusters {
            self.free(member, 0, CLUSTER as u16, cluster * CLUSTER);
            if let Some(own) = self.names(member, cluster * CLUSTER).own {
                let first = own as usize * CLUSTER as usize;
                let unused =
                    self.holders[first..first + CLUSTER as usize].iter().all(|holders| *holders == 0);
                // A cluster that this member left for another one (see `alloc`) is not remembered, and stays unused.
                if unused {
                    self.spare.push(own);
                }
            }
        }
        self.odd = odd;
        self.members.remove(&member);
    }

    /// `kind` for runs of neighbours.
    fn push_runs(&mut self, kind: Kind, cpu: u16, slots: &[u32]) {
        let next_to = |a: &u32, b: &u32| a + 1 == *b && !b.is_multiple_of(CLUSTER as u32);
        for run in slots.chunk_by(next_to) {
            self.push(kind, cpu, run.len() as u16, run[0]);
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
        if self.held > self.peak {
            (self.peak, self.ops_to_peak) = (self.held, self.ops.len());
        }
        self.slots[first as usize..first as usize + usize::from(slots)].fill(state);
    }
}
