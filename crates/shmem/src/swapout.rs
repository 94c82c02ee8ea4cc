//! Swap-out: a folio leaves as one folio (spec §2.7, §3.5, §3.6).
//!
//! The object goes on the swap list before slots are taken. If there are none, it goes off again, a
//! large folio is split, and its pages try on their own. The map names the entry from the moment
//! when the folio has its slots. Until its bytes are stored, the folio is in the swap cache, held
//! by this thread, and a thread that wants the page waits for the folio there.

use crate::counters::{add, count_order};
use crate::devices::Growth;
use crate::folio::flag;
use crate::object::Inner;
use crate::space::ShmemSpace;
use crate::swap::{Context, RUN, Swap};
use crate::sync::Relaxed;
use crate::word::Item;
use folioswap_devices::{IncompressiblePolicy, Page};
use folioswap_policy::turns::Choice;
use folioswap_slots::{AllocError, CLUSTER_SLOTS, DeviceMask, FolioId, Order, Shadow, SwapEntry};
use folioswap_space::space::WriteError;
use std::sync::Arc;

/// The bytes of a folio could not be stored anywhere.
pub(crate) struct NotStored;

/// The fate of a folio whose bytes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Afterwards {
    /// It is freed.
    Freed,
    /// It stays in the swap cache until reclaim comes to it again, as in the kernel.
    #[cfg_attr(not(test), allow(dead_code, reason = "the races of cached folios need it"))]
    Cached,
}

impl ShmemSpace {
    /// Swaps a folio out. The caller holds it exclusively and has taken it off the lists;
    /// afterwards the caller no longer has it. Returns the pages that were freed.
    pub(crate) fn swap_out(&self, frame: u32) -> u64 {
        let folio = self.folios.of(frame);
        if folio.object.load(Relaxed) == 0 {
            return self.drop_cached(frame);
        }
        let Some(owner) = self.owner(frame) else {
            self.keep(frame);
            return 0;
        };
        let inner = &*owner;
        let (index, order) = (folio.index.load(Relaxed), folio.order());
        if folio.has(flag::CLEAN) {
            return self.leave_clean(inner, frame, index, order);
        }
        match self.swap_out_whole(inner, frame, index, order, Afterwards::Freed) {
            Ok(()) => {
                count_order(&self.counters.swpout, order);
                order.slots().into()
            }
            Err(_) if order == Order::ZERO => {
                self.keep(frame);
                0
            }
            Err(NotStored) => {
                count_order(&self.counters.swpout_fallback, order);
                inner.split_folio(self, frame, index, order.slots());
                let page_by_page = |page| match self.swap_out_whole(
                    inner,
                    frame + page,
                    index + u64::from(page),
                    Order::ZERO,
                    Afterwards::Freed,
                ) {
                    Ok(()) => {
                        count_order(&self.counters.swpout, Order::ZERO);
                        1
                    }
                    Err(NotStored) => {
                        self.keep(frame + page);
                        0
                    }
                };
                (0..order.slots()).map(page_by_page).sum()
            }
        }
    }

    /// The object that has a folio in its map. The caller holds the folio exclusively, and it is
    /// still in the map. The object may be dropped as soon as the map has an entry in place of the
    /// folio, because dropping does not wait for the folio's holder: the returned reference keeps
    /// its map.
    pub(crate) fn owner(&self, frame: u32) -> Option<Arc<Inner>> {
        let inner = self.folios.of(frame).object.load(Relaxed) as *const Inner;
        // SAFETY: null, or the object is alive while a folio names it, is held exclusively and was
        // not taken out of the map: dropping an object takes each of its folios out of the map
        // first, holding it exclusively.
        unsafe { inner.as_ref() }?.weak.upgrade()
    }

    /// Takes a folio out that was not written to since it came back: its stored copy stands for it.
    fn leave_clean(&self, inner: &Inner, frame: u32, index: u64, order: Order) -> u64 {
        let (folio, pages) = (self.folios.of(frame), order.slots());
        let Some(entry) = folio.entry() else { return 0 };
        self.swap_list.add(inner, pages.into());
        let mut map = inner.map.lock();
        debug_assert!(
            map.expect_folio(index, order, frame).is_ok(),
            "a folio held exclusively is in the map"
        );
        map.store(index, order, Some(Item::Swap(entry)));
        drop(map);
        self.swap.space().leave_cache(entry, pages, Shadow::EMPTY);
        folio.set_entry(None);
        folio.object.store(0, Relaxed);
        count_order(&self.counters.clean, order);
        self.free_folio(frame);
        pages.into()
    }

    /// Puts a folio back on the lists, far from the end where reclaim looks.
    fn keep(&self, frame: u32) {
        self.folios.of(frame).set(flag::ACTIVE);
        self.lru.add(&self.folios, frame);
        self.folios.unlock(frame);
    }

    /// Drops a folio that is only in the swap cache (read ahead, and never asked for): its bytes
    /// are stored.
    pub(crate) fn drop_cached(&self, frame: u32) -> u64 {
        let folio = self.folios.of(frame);
        let pages = folio.order().slots();
        if let Some(entry) = folio.entry() {
            self.swap.space().leave_cache(entry, pages, Shadow::EMPTY);
            folio.set_entry(None);
        }
        self.free_folio(frame);
        pages.into()
    }

    /// Writes a folio out under one entry and frees it. Otherwise the folio is as it was, still
    /// held. One exception: its pages may have become single folios of which some are gone, if the
    /// object was truncated meanwhile. The others are then on the lists, and the result is a
    /// success.
    pub(crate) fn swap_out_whole(
        &self,
        inner: &Inner,
        frame: u32,
        index: u64,
        order: Order,
        afterwards: Afterwards,
    ) -> Result<(), NotStored> {
        let (folio, pages) = (self.folios.of(frame), order.slots());
        self.swap_list.add(inner, pages.into());
        let Some(entry) = self.take_slots(order, frame) else {
            self.swap_list.failed(inner, pages.into());
            return Err(NotStored);
        };
        folio.set_entry(Some(entry));
        let mut map = inner.map.lock();
        debug_assert!(
            map.expect_folio(index, order, frame).is_ok(),
            "a folio held exclusively is in the map"
        );
        map.store(index, order, Some(Item::Swap(entry)));
        drop(map);
        let stored = self.swap.with(|context| self.store(context, frame, pages, entry));
        if stored.is_err() {
            return self.put_back(inner, frame, index, order, entry);
        }
        add(&self.counters.pswpout, pages.into());
        folio.object.store(0, Relaxed);
        if afterwards == Afterwards::Cached {
            self.lru.add(&self.folios, frame);
            self.folios.unlock(frame);
            return Ok(());
        }
        self.swap.space().leave_cache(entry, pages, Shadow::EMPTY);
        folio.set_entry(None);
        self.free_folio(frame);
        Ok(())
    }

    pub(crate) fn take_slots(&self, order: Order, frame: u32) -> Option<SwapEntry> {
        for _ in 0..3 {
            // Reserves tables for the next allocation. If the system gives no memory, it uses those
            // there are.
            let _ = self.swap.space().reserve_frames();
            match self.swap.space().allocate_on(Swap::cpu(), order, FolioId(frame)) {
                Ok(entry) => return Some(entry),
                Err(AllocError::NoFrame) => {}
                Err(_) => return None,
            }
        }
        None
    }

    /// Writes all pages of a folio, to the devices whose turn it is.
    fn store(
        &self,
        context: &mut Context,
        frame: u32,
        pages: u32,
        entry: SwapEntry,
    ) -> Result<(), NotStored> {
        let start = self.frames.address(frame).cast::<Page>();
        // SAFETY: the folio's memory, held exclusively by our caller; any bytes are a page.
        let memory = unsafe { std::slice::from_raw_parts(start.as_ptr(), pages as usize) };
        let entries = |page: usize| entry.checked_add(page as u64);
        let devices = self.swap.devices();
        let _writing = devices.write();
        let (mut page, mut loose, mut full) = (0, 0, DeviceMask::NONE);
        while page < memory.len() {
            let end = memory.len().min(page + RUN);
            let done = match devices.next(full).ok_or(NotStored)? {
                Choice::Store => self.store_compressed(context, memory, page..end, &entries, &mut loose)?,
                Choice::Shared(shared) => {
                    let done = self.store_on_devices(&memory[page..end], page, &entries, shared);
                    if done < end - page {
                        // The other pages of this folio go elsewhere.
                        full = shared.iter().fold(full, DeviceMask::with);
                    }
                    done
                }
            };
            devices.used(done as u64);
            page += done;
        }
        Ok(())
    }

    /// Writes the pages of a range to the compressed store, and runs among them that do not
    /// compress to the devices beside it. `loose` counts those of the folio that find no place
    /// there. Returns the number of pages written: all of them, or up to the end of a run.
    fn store_compressed(
        &self,
        context: &mut Context,
        memory: &[Page],
        range: std::ops::Range<usize>,
        entries: &impl Fn(usize) -> Option<SwapEntry>,
        loose: &mut usize,
    ) -> Result<usize, NotStored> {
        let space = self.swap.space();
        let mut page = range.start;
        while page < range.end {
            let at = entries(page).ok_or(NotStored)?;
            match space.write(&mut context.scratch, at, &memory[page], IncompressiblePolicy::Refuse) {
                Ok(()) => page += 1,
                Err(WriteError::Incompressible) => {
                    // The following pages are most likely of the same kind: those that look
                    // incompressible join the run.
                    let mut end = page + 1;
                    while end < memory.len() && end - page < RUN && is_random(&memory[end]) {
                        end += 1;
                    }
                    let mut full = DeviceMask::NONE;
                    loop {
                        let beside = self.swap.devices().beside_store(full);
                        page += self.store_on_devices(&memory[page..end], page, entries, beside);
                        if page == end || beside.is_empty() {
                            break;
                        }
                        full = beside.iter().fold(full, DeviceMask::with);
                    }
                    *loose += end - page;
                    // Pages kept uncompressed free no memory: that only pays where most of the
                    // folio compresses.
                    if *loose * 4 > memory.len() {
                        return Err(NotStored);
                    }
                    for (step, bytes) in memory[page..end].iter().enumerate() {
                        let at = entries(page + step).ok_or(NotStored)?;
                        space
                            .write(&mut context.scratch, at, bytes, IncompressiblePolicy::Keep)
                            .map_err(|_| NotStored)?;
                    }
                    page = end;
                }
                Err(_) => return Err(NotStored),
            }
        }
        Ok(page - range.start)
    }

    /// Writes pages to consecutive slots of these devices, as far as there are such. Returns the
    /// number of pages written, from the first on.
    fn store_on_devices(
        &self,
        memory: &[Page],
        first: usize,
        entries: &impl Fn(usize) -> Option<SwapEntry>,
        devices: DeviceMask,
    ) -> usize {
        let mut run = [None; RUN];
        let mut done = 0;
        let mut size = memory.len();
        while done < memory.len() && !devices.is_empty() {
            size = size.min(memory.len() - done);
            for (step, entry) in run.iter_mut().enumerate().take(size) {
                *entry = entries(first + done + step);
            }
            let bytes = memory[done..done + size].as_flattened();
            match self.swap.space().write_run(&run[..size], bytes, devices) {
                Ok(()) => done += size,
                Err(WriteError::NoSlots) if self.swap.grow(devices) == Growth::Added => {}
                Err(WriteError::NoSlots | WriteError::OrderNotTaken) if size > 1 => size /= 2,
                Err(_) => break,
            }
        }
        done
    }

    /// Puts the folio back into the map after storing it failed.
    pub(crate) fn put_back(
        &self,
        inner: &Inner,
        frame: u32,
        index: u64,
        order: Order,
        entry: SwapEntry,
    ) -> Result<(), NotStored> {
        let (folio, pages) = (self.folios.of(frame), order.slots());
        let space = self.swap.space();
        let mut map = inner.map.lock();
        if map.expect_swapped(index, order, entry).is_ok() {
            map.store(index, order, Some(Item::Folio(frame)));
            drop(map);
            folio.set_entry(None);
            space.free_folio(entry, pages, FolioId(frame));
            self.swap_list.failed(inner, pages.into());
            return Err(NotStored);
        }
        // Part of the range was truncated meanwhile: each page is handled on its own.
        for page in 1..pages {
            self.folios.lock(frame + page);
        }
        for page in 0..pages {
            self.folios.of(frame + page).begin(Order::ZERO, flag::UPTODATE | flag::ACTIVE);
        }
        let mut kept = [false; CLUSTER_SLOTS as usize];
        for page in 0..pages {
            let at = index + u64::from(page);
            let Some(slot) = entry.checked_add(page.into()) else { continue };
            kept[page as usize] = map.get(at).is_some_and(|found| found.item == Item::Swap(slot));
            if kept[page as usize] {
                map.split(at, Order::ZERO);
                inner.adopt(self, frame + page, at);
                map.store(at, Order::ZERO, Some(Item::Folio(frame + page)));
            }
        }
        drop(map);
        for page in 0..pages {
            let Some(slot) = entry.checked_add(page.into()) else { continue };
            if kept[page as usize] {
                space.free_folio(slot, 1, FolioId(frame));
                self.swap_list.failed(inner, 1);
                self.lru.add(&self.folios, frame + page);
                self.folios.unlock(frame + page);
            } else {
                space.leave_cache(slot, 1, Shadow::EMPTY);
                self.free_folio(frame + page);
            }
        }
        Ok(())
    }
}

/// A cheap guess whether a page that follows an incompressible one is incompressible too: its words
/// hardly repeat.
fn is_random(page: &Page) -> bool {
    let mut seen = [0u64; 4];
    let mut distinct = 0;
    for bytes in page.chunks_exact(16).map(|chunk| chunk[0]) {
        let (word, bit) = ((bytes / 64) as usize, bytes % 64);
        distinct += u32::from(seen[word] >> bit & 1 == 0);
        seen[word] |= 1 << bit;
    }
    // 256 samples of uniform bytes hit about 162 values.
    distinct > 140
}
