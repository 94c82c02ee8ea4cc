//! A memory group: charges, reclaims from the oldest folio on, swaps out and in through the real allocator.
//!
//! What spec §0 says of the swap cache is done here as the kernel's reclaim and fault paths do it: on a synchronous device a folio that comes back
//! frees its slots at once; on another device single pages come back through the swap cache, and a page that is only read keeps its slot
//! (*only cached*) until it is written, its owner ends, or more than half of the swap is used (`vm_swap_full`).

use super::folios::{Folios, State};
use super::recorder::Recorder;
use super::tally::{SwapDevice, Tally};
use crate::memory::Engine;
use folioswap_slots::{
    AllocError, ConfigError, DeviceFlags, DeviceMask, DeviceSpec, FolioId, Hooks, LogicalCpu, Order, Policy,
    Reclaimed, Shadow, Slots, SwapEntry, SwaponError,
};
use folioswap_trace::Event;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// Pages that a reclaim takes out at least, as in the kernel.
const RECLAIM_BATCH: u32 = 32;
/// Folios that a reclaim looks at for each page it wants, before it lets the group exceed its limit.
const LOOKS_PER_PAGE: u64 = 64;
const CLUSTER: u64 = folioswap_slots::CLUSTER_SLOTS as u64;

/// Whose pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A task's: a page that is read may keep its slot.
    Anonymous,
    /// tmpfs: swap-in frees the slot.
    Shmem,
}

/// How a page is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// How much comes back at once from a synchronous device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// The folio.
    Whole,
    /// The page that was touched.
    Page,
}

/// Pages of one owner: number of the folio that covers each.
struct Owner {
    kind: Kind,
    pages: Vec<u32>,
}

/// A memory group with a limit, and what it swaps to.
pub struct MemoryGroup<P: Policy, R: Recorder> {
    engine: Engine<P>,
    folios: Folios,
    owners: Vec<Owner>,
    device: SwapDevice,
    limit: u64,
    resident: u64,
    readahead: u32,
    written: VecDeque<u32>,
    retained: Cell<u64>,
    reclaimed: Cell<u64>,
    recorder: RefCell<R>,
    tally: Tally,
}

/// Why there is no group.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// Sizes.
    #[error("the allocator cannot be made: {0}")]
    Config(#[from] ConfigError),
    /// The device.
    #[error("the swap device cannot be switched on: {0}")]
    Swapon(#[from] SwaponError),
}

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
        group.record(Event::Free { cpu: self.cpu as u16, slots: pages as u16, entry: entry.to_raw() });
        Reclaimed::Freed(pages)
    }
}

impl<P: Policy, R: Recorder> MemoryGroup<P, R> {
    /// A group of `limit` pages whose allocator has `cpus` logical CPUs.
    ///
    /// # Errors
    /// [`GroupError`] for sizes that cannot be.
    pub fn new(
        cpus: u32,
        limit: u64,
        device: SwapDevice,
        readahead: u32,
        recorder: R,
    ) -> Result<Self, GroupError> {
        let clusters =
            u32::try_from(device.pages.div_ceil(CLUSTER)).map_err(|_| ConfigError::InvalidConfig)?;
        let engine = Engine::new(cpus, clusters)?;
        engine.slots().swapon(DeviceSpec { flags: device.flags, ..DeviceSpec::new(device.pages) })?;
        Ok(MemoryGroup {
            engine,
            folios: Folios::new(),
            owners: Vec::new(),
            device,
            limit,
            resident: 0,
            readahead,
            written: VecDeque::new(),
            retained: Cell::new(0),
            reclaimed: Cell::new(0),
            recorder: RefCell::new(recorder),
            tally: Tally::default(),
        })
    }

    fn slots(&self) -> &Slots<0, P> {
        self.engine.slots()
    }

    fn record(&self, event: Event) {
        self.recorder.borrow_mut().record(self.tally.steps, event);
    }

    /// Counts a step of the workload.
    pub(super) fn step(&mut self) {
        self.tally.steps += 1;
        if self.tally.steps.is_multiple_of(256) {
            let slots = self.slots();
            let free = slots.free_slots();
            let inuse = (self.device.pages - 1).saturating_sub(free);
            let full = slots.vm_swap_full();
            self.tally.inuse_peak = self.tally.inuse_peak.max(inuse);
            self.tally.retained_peak = self.tally.retained_peak.max(self.retained.get());
            self.tally.steps_full += if full { 256 } else { 0 };
        }
    }

    /// The end: what was counted, and what listened.
    pub(super) fn finish(mut self) -> (Tally, R) {
        self.tally.slots_reclaimed = self.reclaimed.get();
        let stats = self.slots().stats();
        for (counts, scanned) in self.tally.orders.iter_mut().zip(stats.clusters_scanned) {
            counts.clusters_scanned = scanned;
        }
        self.tally.locks = self.slots().lock_stats();
        (self.tally, self.recorder.into_inner())
    }

    /// The allocator's own check of every invariant.
    pub(super) fn is_consistent(&self) -> bool {
        self.slots().validate().is_ok()
    }

    pub(super) fn new_owner(&mut self, kind: Kind) -> u32 {
        self.owners.push(Owner { kind, pages: Vec::new() });
        (self.owners.len() - 1) as u32
    }

    pub(super) fn pages_of(&self, owner: u32) -> u32 {
        self.owners[owner as usize].pages.len() as u32
    }

    /// First touch of 2^order new pages at the end of the owner's memory.
    pub(super) fn fault_new(&mut self, cpu: u32, owner: u32, order: Order) {
        self.charge(cpu, order.slots());
        let first = self.pages_of(owner);
        let id = self.folios.add(owner, first, order, State::Mapped);
        self.owners[owner as usize].pages.extend(std::iter::repeat_n(id, order.slots() as usize));
        self.folios.push_newest(id);
    }

    /// An access to one page. `extent` is asked when a folio of this order is about to come back whole.
    pub(super) fn touch(
        &mut self,
        cpu: u32,
        owner: u32,
        page: u32,
        access: Access,
        extent: impl FnOnce(Order) -> Extent,
    ) {
        let id = self.owners[owner as usize].pages[page as usize];
        match self.folios.get(id).state {
            State::Mapped => {
                self.folios.get_mut(id).referenced = true;
                if access == Access::Write {
                    self.give_up_slot(cpu, id);
                }
            }
            State::Cached => self.map_cached(cpu, id, access),
            State::Swapped if self.device.flags.contains(DeviceFlags::SYNCHRONOUS) => {
                if extent(self.folios.get(id).order) == Extent::Page {
                    self.split(id, Order::ZERO);
                }
                self.swap_in_direct(cpu, owner, page);
            }
            State::Swapped => self.swap_in_cached(cpu, owner, page, access),
            State::Unused => unreachable!("a page of an owner has a folio"),
        }
    }

    /// Everything that the owner has is freed, in the order of its pages; neighbouring slots go in one call.
    pub(super) fn free_all(&mut self, cpu: u32, owner: u32) {
        let pages = std::mem::take(&mut self.owners[owner as usize].pages);
        let mut run: Option<(SwapEntry, u32)> = None;
        let mut page = 0;
        while let Some(&id) = pages.get(page) {
            let folio = self.folios.get(id);
            let count = folio.pages();
            page += count as usize;
            match (folio.state, folio.entry.get()) {
                (State::Swapped, Some(entry)) => {
                    run = match run {
                        Some((first, length))
                            if first.device() == entry.device()
                                && first.offset() + u64::from(length) == entry.offset()
                                && !entry.offset().is_multiple_of(CLUSTER) =>
                        {
                            Some((first, length + count))
                        }
                        before => {
                            self.put_run(cpu, before);
                            Some((entry, count))
                        }
                    };
                }
                (State::Cached, Some(entry)) => {
                    self.put(entry, count);
                    self.leave_cache(entry, count, id);
                    self.freed(cpu, entry, count);
                    self.forget(id);
                }
                _ => {
                    self.give_up_slot(cpu, id);
                    self.forget(id);
                }
            }
            self.folios.remove(id);
        }
        self.put_run(cpu, run);
    }

    fn put_run(&mut self, cpu: u32, run: Option<(SwapEntry, u32)>) {
        if let Some((entry, count)) = run {
            self.put(entry, count);
            self.freed(cpu, entry, count);
        }
    }

    /// Out of memory and off the list.
    fn forget(&mut self, id: u32) {
        self.folios.unlink(id);
        self.resident -= u64::from(self.folios.get(id).pages());
    }

    fn freed(&mut self, cpu: u32, entry: SwapEntry, count: u32) {
        self.tally.slots_freed += u64::from(count);
        self.record(Event::Free { cpu: cpu as u16, slots: count as u16, entry: entry.to_raw() });
    }

    fn put(&self, entry: SwapEntry, count: u32) {
        let put = self.slots().put(entry, count, |_, _| {});
        debug_assert!(put.is_ok_and(|put| put.rejected == 0), "{put:?}");
    }

    /// Returns the slots that became free by it.
    fn leave_cache(&self, entry: SwapEntry, count: u32, id: u32) -> u32 {
        let freed = self.slots().cache_remove(entry, count, FolioId(id), Shadow::EMPTY, |_, _| {});
        debug_assert!(freed.is_ok(), "{freed:?}");
        freed.unwrap_or(0)
    }

    /// A mapped folio that is also only cached gives its slots back.
    fn give_up_slot(&mut self, cpu: u32, id: u32) {
        let folio = self.folios.get(id);
        let count = folio.pages();
        if let Some(entry) = folio.entry.take() {
            self.retained.set(self.retained.get() - u64::from(count));
            self.leave_cache(entry, count, id);
            self.freed(cpu, entry, count);
        }
    }

    /// A folio in the swap cache comes into use again.
    fn map_cached(&mut self, cpu: u32, id: u32, access: Access) {
        let folio = self.folios.get_mut(id);
        folio.referenced = true;
        folio.written = false;
        folio.state = State::Mapped;
        let (count, owner) = (folio.pages(), folio.owner);
        let Some(entry) = folio.entry.get() else { return };
        self.put(entry, count);
        let keeps = self.owners[owner as usize].kind == Kind::Anonymous
            && access == Access::Read
            && !self.slots().vm_swap_full();
        self.retained.set(self.retained.get() + u64::from(count));
        if keeps {
            self.tally.slots_retained += u64::from(count);
            self.record(Event::Retain { cpu: cpu as u16, slots: count as u16, entry: entry.to_raw() });
        } else {
            self.give_up_slot(cpu, id);
        }
    }

    /// Swap-in of a whole folio without the swap cache; a 2 MB folio comes back as 1 MB, as in the kernel.
    fn swap_in_direct(&mut self, cpu: u32, owner: u32, page: u32) {
        let id = self.owners[owner as usize].pages[page as usize];
        let order = self.folios.get(id).order;
        if order == Order::MAX
            && let Some(smaller) = Order::new(8)
        {
            self.split(id, smaller);
        }
        let id = self.owners[owner as usize].pages[page as usize];
        let count = self.folios.get(id).pages();
        self.charge(cpu, count);
        let folio = self.folios.get_mut(id);
        folio.state = State::Mapped;
        folio.referenced = false;
        let entry = folio.entry.take();
        self.folios.push_newest(id);
        self.put_run(cpu, entry.map(|entry| (entry, count)));
    }

    /// Swap-in of single pages through the swap cache, with readahead in the owner's memory.
    fn swap_in_cached(&mut self, cpu: u32, owner: u32, page: u32, access: Access) {
        let end = self.pages_of(owner).min(page + self.readahead);
        self.charge(cpu, end - page);
        for near in page..end {
            let id = self.owners[owner as usize].pages[near as usize];
            if self.folios.get(id).state != State::Swapped {
                continue;
            }
            self.split(id, Order::ZERO);
            let id = self.owners[owner as usize].pages[near as usize];
            let Some(entry) = self.folios.get(id).entry.get() else { continue };
            let inserted = self.slots().cache_insert(entry, Order::ZERO, FolioId(id));
            debug_assert!(inserted.is_ok(), "{inserted:?}");
            self.folios.get_mut(id).state = State::Cached;
            self.folios.push_newest(id);
            self.resident += 1;
        }
        // What was charged for pages that were there already is given back.
        self.resident -= u64::from(end - page);
        let id = self.owners[owner as usize].pages[page as usize];
        self.map_cached(cpu, id, access);
    }

    /// A folio becomes folios of `order`. In memory only one that is on no list may be split.
    fn split(&mut self, id: u32, order: Order) {
        let folio = self.folios.get_mut(id);
        let (owner, first, pages, state) = (folio.owner, folio.first_page, folio.pages(), folio.state);
        if folio.order <= order {
            return;
        }
        folio.order = order;
        let entry = folio.entry.get();
        for step in (order.slots()..pages).step_by(order.slots() as usize) {
            let part = self.folios.add(owner, first + step, order, state);
            self.folios.get(part).entry.set(entry.and_then(|entry| entry.checked_add(u64::from(step))));
            let range = (first + step) as usize..(first + step + order.slots()) as usize;
            self.owners[owner as usize].pages[range].fill(part);
        }
    }

    /// Makes room for `pages` and takes it.
    fn charge(&mut self, cpu: u32, pages: u32) {
        if self.resident + u64::from(pages) > self.limit {
            self.reclaim(cpu, pages.max(RECLAIM_BATCH));
        }
        self.resident += u64::from(pages);
    }

    /// Takes folios out, oldest first; one that was used since goes round again.
    fn reclaim(&mut self, cpu: u32, want: u32) {
        // Write-back that was begun by the reclaim before is over by now.
        let mut freed = 0;
        while let Some(id) = self.written.pop_front() {
            let folio = self.folios.get_mut(id);
            if folio.state == State::Cached && folio.written {
                folio.written = false;
                freed += self.evict(cpu, id);
            }
        }
        let mut looks = u64::from(want) * LOOKS_PER_PAGE + 1024;
        while freed < want && looks > 0 {
            looks -= 1;
            let Some(id) = self.folios.oldest() else { return };
            let folio = self.folios.get_mut(id);
            if folio.referenced || folio.written {
                folio.referenced = false;
                self.folios.unlink(id);
                self.folios.push_newest(id);
                continue;
            }
            let out = self.evict(cpu, id);
            if out == 0 {
                // Out of swap: nothing more can leave. The kernel would kill somebody; here the group exceeds its limit, and the count tells.
                return;
            }
            freed += out;
        }
    }

    /// Returns the pages that left memory, or leave it with the next reclaim.
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
                // Unchanged and still on the device.
                let raised = self.slots().dup(entry, count);
                debug_assert!(raised.is_ok(), "{raised:?}");
                self.leave_cache(entry, count, id);
                self.leave(id);
                self.retained.set(self.retained.get() - u64::from(count));
                self.tally.slots_reused += u64::from(count);
                self.record(Event::Reuse { cpu: cpu as u16, slots: count as u16, entry: entry.to_raw() });
                count
            }
            _ => self.swap_out(cpu, id),
        }
    }

    /// Off the list and out of memory, on the device.
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
                self.record(Event::Alloc {
                    cpu: cpu as u16,
                    order: order.index() as u8,
                    entry: entry.to_raw(),
                });
                self.folios.get(id).entry.set(Some(entry));
                if self.device.flags.contains(DeviceFlags::SYNCHRONOUS) {
                    self.leave_cache(entry, order.slots(), id);
                    self.leave(id);
                } else {
                    let folio = self.folios.get_mut(id);
                    folio.state = State::Cached;
                    folio.written = true;
                    self.written.push_back(id);
                    self.folios.unlink(id);
                    self.folios.push_newest(id);
                }
                order.slots()
            }
            Err(AllocError::SplitAndRetry | AllocError::NoSpace) if order > Order::ZERO => {
                counts.fallback += 1;
                self.record(Event::Fallback { cpu: cpu as u16, order: order.index() as u8 });
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
