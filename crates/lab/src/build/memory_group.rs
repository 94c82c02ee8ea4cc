//! A memory group: charges pages, and swaps in through the real allocator; `reclaim.rs` swaps out.
//!
//! The swap cache (spec §0) follows the kernel's reclaim and fault paths. On a synchronous device a
//! folio that comes back frees its slots at once. On another device single pages come back through
//! the swap cache, and a page that is only read keeps its slot (*only cached*) until it is written,
//! its owner ends, or more than half of the swap is used (`vm_swap_full`).

use super::folios::{Folios, State};
use super::reclaim::Work;
use super::recorder::Recorder;
use super::tally::{SwapDevice, Tally};
use crate::allocator::{Allocator, CLUSTER};
use crate::wear::Wear;
use folioswap_slots::{
    ConfigError, DeviceFlags, DeviceId, DeviceSpec, FolioId, Order, Policy, Shadow, Slots, SwapEntry,
    SwaponError,
};
use folioswap_trace::{Cause, Details, Event};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// The kind of an owner's pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemoryType {
    /// Pages of a task: one that is only read may keep its slot.
    Anonymous,
    /// Pages of tmpfs: swap-in frees the slot.
    Shmem,
}

/// The kind of an access to a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// How much comes back at once from a synchronous device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// The whole folio.
    Folio,
    /// The page that was touched.
    Page,
}

/// An owner, with the number of the folio that covers each of its pages.
pub(super) struct Owner {
    memory_type: MemoryType,
    pub(super) pages: Vec<u32>,
}

/// A memory group with a limit, and the device that it swaps to.
pub struct MemoryGroup<P: Policy, R: Recorder> {
    allocator: Allocator<P>,
    pub(super) folios: Folios,
    pub(super) owners: Vec<Owner>,
    pub(super) device: SwapDevice,
    pub(super) id: DeviceId,
    pub(super) wear: Wear,
    /// Slots in use, for the moment when the device becomes full.
    pub(super) inuse: Cell<u64>,
    pub(super) limit: u64,
    pub(super) resident: u64,
    readahead: u32,
    pub(super) writeback: VecDeque<u32>,
    pub(super) retained: Cell<u64>,
    pub(super) reclaimed: Cell<u64>,
    recorder: RefCell<R>,
    pub(super) tally: Tally,
}

/// Why there is no group.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// The allocator refuses the sizes.
    #[error("the allocator cannot be made: {0}")]
    Config(#[from] ConfigError),
    /// The device cannot be switched on.
    #[error("the swap device cannot be switched on: {0}")]
    Swapon(#[from] SwaponError),
}

impl<P: Policy, R: Recorder> MemoryGroup<P, R> {
    /// Makes a group of `limit` pages whose allocator has `cpus` logical CPUs.
    ///
    /// # Errors
    /// [`GroupError`] for impossible sizes.
    pub fn new(
        cpus: u32,
        limit: u64,
        device: SwapDevice,
        readahead: u32,
        recorder: R,
    ) -> Result<Self, GroupError> {
        let clusters =
            u32::try_from(device.pages.div_ceil(CLUSTER)).map_err(|_| ConfigError::InvalidConfig)?;
        let allocator = Allocator::new(cpus, clusters)?;
        let spec = DeviceSpec { flags: device.flags, ..DeviceSpec::new(device.pages) };
        let id = allocator.slots().swapon(spec)?;
        Ok(MemoryGroup {
            allocator,
            folios: Folios::new(),
            owners: Vec::new(),
            device,
            id,
            wear: Wear::new([(id, device.pages)]),
            inuse: Cell::new(0),
            limit,
            resident: 0,
            readahead,
            writeback: VecDeque::new(),
            retained: Cell::new(0),
            reclaimed: Cell::new(0),
            recorder: RefCell::new(recorder),
            tally: Tally::default(),
        })
    }

    pub(super) fn slots(&self) -> &Slots<0, P> {
        self.allocator.slots()
    }

    pub(super) fn record(&self, event: Event, folio: u32, cause: Cause) {
        // Folio 0 would say that none is known.
        let details = Details { folio: u64::from(folio) + 1, cause, ..Details::default() };
        self.recorder.borrow_mut().record(self.tally.steps, event, details);
    }

    /// Counts a step of the workload.
    pub(super) fn step(&mut self) {
        self.tally.steps += 1;
        self.run_work(Work::Discards);
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

    /// Ends the group; returns its counts and its recorder.
    pub(super) fn finish(mut self) -> (Tally, R) {
        self.tally.slots_reclaimed = self.reclaimed.get();
        self.tally.slots_ever_written = self.wear.slots_ever_written();
        self.tally.clusters_discarded = self.wear.clusters_discarded();
        let stats = self.slots().stats();
        for (counts, scanned) in self.tally.orders.iter_mut().zip(stats.clusters_scanned) {
            counts.clusters_scanned = scanned;
        }
        self.tally.locks = self.slots().lock_stats();
        (self.tally, self.recorder.into_inner())
    }

    /// Runs the allocator's own check of every invariant.
    pub(super) fn is_consistent(&self) -> bool {
        self.slots().validate().is_ok()
    }

    pub(super) fn new_owner(&mut self, memory_type: MemoryType) -> u32 {
        self.owners.push(Owner { memory_type, pages: Vec::new() });
        (self.owners.len() - 1) as u32
    }

    pub(super) fn pages_of(&self, owner: u32) -> u32 {
        self.owners[owner as usize].pages.len() as u32
    }

    /// Touches 2^order new pages at the end of the owner's memory for the first time.
    pub(super) fn fault_new(&mut self, cpu: u32, owner: u32, order: Order) {
        self.charge(cpu, order.slots());
        let first = self.pages_of(owner);
        let id = self.folios.add(owner, first, order, State::Mapped);
        self.owners[owner as usize].pages.extend(std::iter::repeat_n(id, order.slots() as usize));
        self.folios.push_newest(id);
    }

    /// Accesses one page. `extent` is called when a folio of the given order is about to come back
    /// from a synchronous device.
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
                    self.give_up_slot(cpu, id, Cause::Reclaim);
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

    /// Frees all memory of the owner, in the order of its pages; neighbouring slots go in one call.
    pub(super) fn free_all(&mut self, cpu: u32, owner: u32) {
        let pages = std::mem::take(&mut self.owners[owner as usize].pages);
        let mut run: Option<(SwapEntry, u32)> = None;
        let mut page = 0;
        let mut last = 0;
        while let Some(&id) = pages.get(page) {
            last = id;
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
                            self.put_run(cpu, before, id, Cause::Exit);
                            Some((entry, count))
                        }
                    };
                }
                (State::Cached, Some(entry)) => {
                    self.put(entry, count);
                    self.leave_cache(entry, count, id);
                    self.freed(cpu, entry, count, id, Cause::Exit);
                    self.forget(id);
                }
                _ => {
                    self.give_up_slot(cpu, id, Cause::Exit);
                    self.forget(id);
                }
            }
            self.folios.remove(id);
        }
        self.put_run(cpu, run, last, Cause::Exit);
    }

    fn put_run(&mut self, cpu: u32, run: Option<(SwapEntry, u32)>, id: u32, cause: Cause) {
        if let Some((entry, count)) = run {
            self.put(entry, count);
            self.freed(cpu, entry, count, id, cause);
        }
    }

    /// Takes a folio off the list and out of memory.
    pub(super) fn forget(&mut self, id: u32) {
        self.folios.unlink(id);
        self.resident -= u64::from(self.folios.get(id).pages());
    }

    fn freed(&mut self, cpu: u32, entry: SwapEntry, count: u32, id: u32, cause: Cause) {
        self.tally.slots_freed += u64::from(count);
        let event = Event::Free { cpu: cpu as u16, slots: count as u16, entry: entry.to_raw() };
        self.record(event, id, cause);
    }

    fn put(&self, entry: SwapEntry, count: u32) {
        let put = self.slots().put(entry, count, |_, _| {});
        debug_assert!(put.is_ok_and(|put| put.rejected == 0), "{put:?}");
        self.inuse.set(self.inuse.get() - put.map_or(0, |put| u64::from(put.freed)));
    }

    /// Takes a folio out of the swap cache; returns the number of slots that this freed.
    pub(super) fn leave_cache(&self, entry: SwapEntry, count: u32, id: u32) -> u32 {
        let freed = self.slots().cache_remove(entry, count, FolioId(id), Shadow::EMPTY, |_, _| {});
        debug_assert!(freed.is_ok(), "{freed:?}");
        let freed = freed.unwrap_or(0);
        self.inuse.set(self.inuse.get() - u64::from(freed));
        freed
    }

    /// Frees the slots of a mapped folio that is also only cached.
    fn give_up_slot(&mut self, cpu: u32, id: u32, cause: Cause) {
        let folio = self.folios.get(id);
        let count = folio.pages();
        if let Some(entry) = folio.entry.take() {
            self.retained.set(self.retained.get() - u64::from(count));
            self.leave_cache(entry, count, id);
            self.freed(cpu, entry, count, id, cause);
        }
    }

    /// Maps a folio of the swap cache again.
    fn map_cached(&mut self, cpu: u32, id: u32, access: Access) {
        let folio = self.folios.get_mut(id);
        folio.referenced = true;
        folio.writeback = false;
        folio.state = State::Mapped;
        let (count, owner) = (folio.pages(), folio.owner);
        let Some(entry) = folio.entry.get() else { return };
        self.put(entry, count);
        let keeps = self.owners[owner as usize].memory_type == MemoryType::Anonymous
            && access == Access::Read
            && !self.slots().vm_swap_full();
        self.retained.set(self.retained.get() + u64::from(count));
        if keeps {
            self.tally.slots_retained += u64::from(count);
            let event = Event::Retain { cpu: cpu as u16, slots: count as u16, entry: entry.to_raw() };
            self.record(event, id, Cause::SwapIn);
        } else {
            self.give_up_slot(cpu, id, Cause::SwapIn);
        }
    }

    /// Swaps a folio in without the swap cache; a 2 MB folio comes back as 1 MB, as in the kernel.
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
        self.put_run(cpu, entry.map(|entry| (entry, count)), id, Cause::SwapIn);
    }

    /// Swaps single pages in through the swap cache, with readahead in the owner's memory.
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
        // The charge for pages that were in memory already is given back.
        self.resident -= u64::from(end - page);
        let id = self.owners[owner as usize].pages[page as usize];
        self.map_cached(cpu, id, access);
    }

    /// Splits a folio into folios of `order`. A folio in memory must be on no list.
    pub(super) fn split(&mut self, id: u32, order: Order) {
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
}
