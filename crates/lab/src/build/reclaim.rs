//! Reclaim: folios leave memory, oldest first, through the real allocator.

use super::folios::State;
use super::memory_group::MemoryGroup;
use super::recorder::Recorder;
use folioswap_slots::{
    AllocError, DeviceFlags, DeviceId, DeviceMask, DiscardOutcome, FolioId, FullClusters, Hooks, LogicalCpu,
    Order, Policy, Reclaimed, SwapEntry,
};
use folioswap_trace::{Cause, Event};

/// Pages that a reclaim takes out at least, as in the kernel.
const RECLAIM_BATCH: u32 = 32;
/// Folios that a reclaim looks at for each wanted page before it lets the group exceed its limit.
const LOOKS_PER_PAGE: u64 = 64;

/// Takes folios that are only cached out of the swap cache when the allocator wants their slots.
struct Reclaimer<'a, P: Policy, R: Recorder> {
    group: &'a MemoryGroup<P, R>,
    cpu: u32,
}

impl<P: Policy, R: Recorder> Hooks for Reclaimer<'_, P, R> {
    fn reclaim(&self, _entry: SwapEntry, folio: FolioId) -> Reclaimed {
        let found = self.group.folios.get(folio.0);
        let pages = found.pages();
        let (State::Mapped, Some(entry)) = (found.state, found.entry.get()) else {
            return Reclaimed::Kept(pages);
        };
        let freed = self.group.leave_cache(entry, pages, folio.0);
        found.entry.set(None);
        let group = self.group;
        group.retained.set(group.retained.get() - u64::from(pages));
        group.reclaimed.set(group.reclaimed.get() + u64::from(freed));
        let event = Event::Free { cpu: self.cpu as u16, slots: pages as u16, entry: entry.to_raw() };
        group.record(event, folio.0, Cause::Reclaim);
        Reclaimed::Freed(pages)
    }

    fn discard(&self, _device: DeviceId, _first: u64, _slots: u32) -> DiscardOutcome {
        self.group.wear.discard_cluster();
        DiscardOutcome::Done
    }
}

/// The work items of a device, which the kernel queues and which run soon after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// The discards that wait.
    Discards,
    /// The search of full clusters for slots that are only cached, because the device is full.
    FullClusters,
}

impl<P: Policy, R: Recorder> MemoryGroup<P, R> {
    /// Makes room for `pages` and charges them.
    pub(super) fn charge(&mut self, cpu: u32, pages: u32) {
        if self.resident + u64::from(pages) > self.limit {
            self.reclaim(cpu, pages.max(RECLAIM_BATCH));
        }
        self.resident += u64::from(pages);
    }

    /// Runs a work item, if there is anything for it.
    pub(super) fn run_work(&mut self, work: Work) {
        // A worker belongs to no CPU of the group; what it frees is recorded as of the first.
        let hooks = Reclaimer { group: self, cpu: 0 };
        match work {
            Work::Discards if self.slots().discards_pending(self.id) > 0 => {
                self.slots().run_discards(self.id, &hooks);
            }
            Work::Discards => {}
            Work::FullClusters => {
                let freed = self.slots().reclaim_full_clusters(self.id, FullClusters::All, &hooks);
                self.tally.slots_reclaimed_forced += u64::from(freed);
            }
        }
    }

    /// Takes folios out of memory, oldest first; a folio that was used meanwhile goes round again.
    fn reclaim(&mut self, cpu: u32, want: u32) {
        // Write-back that the previous reclaim began has ended by now.
        let mut freed = 0;
        while let Some(id) = self.writeback.pop_front() {
            let folio = self.folios.get_mut(id);
            if folio.state == State::Cached && folio.writeback {
                folio.writeback = false;
                freed += self.evict(cpu, id);
            }
        }
        let mut looks = u64::from(want) * LOOKS_PER_PAGE + 1024;
        while freed < want && looks > 0 {
            looks -= 1;
            let Some(id) = self.folios.oldest() else { return };
            let folio = self.folios.get_mut(id);
            if folio.referenced || folio.writeback {
                folio.referenced = false;
                self.folios.unlink(id);
                self.folios.push_newest(id);
                continue;
            }
            let out = self.evict(cpu, id);
            if out == 0 {
                // Out of swap, nothing more can leave. The kernel would kill a process here; the
                // model exceeds the limit, and the count of fallbacks tells.
                return;
            }
            freed += out;
        }
    }

    /// Evicts a folio; returns its pages, which have left memory or leave it with the next reclaim.
    fn evict(&mut self, cpu: u32, id: u32) -> u32 {
        let folio = self.folios.get(id);
        let count = folio.pages();
        match (folio.state, folio.entry.get()) {
            (State::Cached, Some(entry)) => {
                self.leave_cache(entry, count, id);
                self.leave(id);
                count
            }
            (State::Mapped, Some(entry)) => {
                // The folio is unchanged and still on the device.
                let raised = self.slots().dup(entry, count);
                debug_assert!(raised.is_ok(), "{raised:?}");
                self.leave_cache(entry, count, id);
                self.leave(id);
                self.retained.set(self.retained.get() - u64::from(count));
                self.tally.slots_reused += u64::from(count);
                let event = Event::Reuse { cpu: cpu as u16, slots: count as u16, entry: entry.to_raw() };
                self.record(event, id, Cause::Unknown);
                count
            }
            _ => self.swap_out(cpu, id),
        }
    }

    /// Takes a folio off the list and out of memory; it is on the device.
    fn leave(&mut self, id: u32) {
        self.forget(id);
        self.folios.get_mut(id).state = State::Swapped;
    }

    fn swap_out(&mut self, cpu: u32, id: u32) -> u32 {
        let order = self.folios.get(id).order;
        let hooks = Reclaimer { group: self, cpu };
        let outcome =
            self.slots().alloc_folio_with(LogicalCpu(cpu), order, FolioId(id), DeviceMask::ALL, &hooks);
        let counts = &mut self.tally.orders[order.index()];
        match outcome {
            Ok(entry) => {
                counts.allocated += 1;
                self.wear.write(entry, order.slots());
                self.inuse.set(self.inuse.get() + u64::from(order.slots()));
                let (order_index, raw) = (order.index() as u8, entry.to_raw());
                let event = Event::Alloc { cpu: cpu as u16, order: order_index, entry: raw };
                self.record(event, id, Cause::Unknown);
                self.folios.get(id).entry.set(Some(entry));
                if self.device.flags.contains(DeviceFlags::SYNCHRONOUS) {
                    self.leave_cache(entry, order.slots(), id);
                    self.leave(id);
                } else {
                    let folio = self.folios.get_mut(id);
                    folio.state = State::Cached;
                    folio.writeback = true;
                    self.writeback.push_back(id);
                    self.folios.unlink(id);
                    self.folios.push_newest(id);
                }
                // The header's slot is none.
                if self.inuse.get() == self.device.pages - 1 && self.slots().vm_swap_full() {
                    self.run_work(Work::FullClusters);
                }
                order.slots()
            }
            Err(AllocError::SplitAndRetry | AllocError::NoSpace) if order > Order::ZERO => {
                counts.fallback += 1;
                let event = Event::Fallback { cpu: cpu as u16, order: order.index() as u8 };
                self.record(event, id, Cause::Unknown);
                self.split_and_swap_out(cpu, id)
            }
            Err(_) => {
                counts.fallback += 1;
                self.folios.unlink(id);
                self.folios.push_newest(id);
                0
            }
        }
    }

    fn split_and_swap_out(&mut self, cpu: u32, id: u32) -> u32 {
        let (owner, first) = (self.folios.get(id).owner, self.folios.get(id).first_page);
        let pages = self.folios.get(id).pages();
        self.folios.unlink(id);
        self.split(id, Order::ZERO);
        let parts: Vec<u32> =
            self.owners[owner as usize].pages[first as usize..(first + pages) as usize].to_vec();
        for part in parts.iter().rev() {
            self.folios.push_oldest(*part);
        }
        parts.into_iter().map(|part| self.swap_out(cpu, part)).sum()
    }
}
