//! Reading folios from swap: directly, in the order of the entry, or with their neighbours.

use crate::counters::{add, count};
use crate::error::ShmemError;
use crate::folio::flag;
use crate::space::{ShmemSpace, Urgency};
use crate::swap::{Context, RUN};
use crate::swapin::{Again, Arrived, Failed};
use crate::sync::lock;
use folioswap_devices::Page;
use folioswap_slots::{FolioId, InsertError, Order, SlotWord, SwapEntry};
use folioswap_space::space::Movers;

/// Largest number of pages around a fault that are read ahead unasked: 2^3, the default of
/// `vm.page-cluster`.
const PAGE_CLUSTER: usize = 8;

impl ShmemSpace {
    /// Whether reading this entry costs as little as copying.
    pub(crate) fn is_synchronous(&self, entry: SwapEntry) -> bool {
        let space = self.swap.space();
        space.file_slot(entry).is_none_or(|slot| space.shared_devices().is_synchronous(slot))
    }

    /// Whether no slot of the range is cached, and all of it is in the compressed store, or all on
    /// devices that are read as fast as memory.
    pub(crate) fn is_uniform(&self, entry: SwapEntry, order: Order) -> bool {
        let Some(first) = entry.round_down(order) else { return false };
        let swap = self.swap.space();
        let is_on_device = |entry| swap.file_slot(entry).is_some();
        let expected = is_on_device(first);
        (0..order.slots()).all(|step| {
            first.checked_add(step.into()).is_some_and(|entry| {
                matches!(swap.slots().word(entry), SlotWord::Shadow { .. })
                    && is_on_device(entry) == expected
                    && self.is_synchronous(entry)
            })
        })
    }

    pub(crate) fn readahead_hit(&self, entry: SwapEntry) {
        lock(&self.readahead).hit(entry.offset() as usize);
    }

    /// Reads the folio of `order` that `entry` is in. A folio that is in the swap cache meanwhile
    /// is used instead.
    pub(crate) fn read_directly(
        &self,
        entry: SwapEntry,
        order: Order,
        urgency: Urgency,
    ) -> Result<Arrived, Failed> {
        let (frame, first) = match self.enter_cache(entry, order, urgency)? {
            Entered::New(frame, first) => (frame, first),
            Entered::There(frame) => return Ok(Arrived::Cached(frame)),
        };
        let read = self.swap.with(|context| self.read_pages(context, first, frame, order.slots()));
        add(&self.counters.pswpin, order.slots().into());
        if read.is_ok() {
            self.folios.of(frame).set(flag::UPTODATE);
        } else if order > Order::ZERO {
            // Page by page next, so that only the pages that cannot be read are lost.
            self.drop_cached(frame);
            return Err(Failed::Error(ShmemError::NoSpace));
        }
        Ok(Arrived::New(frame))
    }

    /// Allocates a folio, held, and adds it to the swap cache for `entry`.
    fn enter_cache(&self, entry: SwapEntry, order: Order, urgency: Urgency) -> Result<Entered, Failed> {
        let frame = self.new_folio(order, urgency).ok_or(Failed::Error(ShmemError::NoSpace))?;
        match self.swap.space().slots().cache_insert(entry, order, FolioId(frame)) {
            Ok(inserted) => {
                self.folios.of(frame).set_entry(Some(inserted.first));
                Ok(Entered::New(frame, inserted.first))
            }
            Err(error) => {
                self.free_folio(frame);
                match error {
                    InsertError::Exist(folio) => Ok(Entered::There(folio.0)),
                    InsertError::NoEntry => Err(Failed::Again),
                    InsertError::Busy | InsertError::Entry(_) if order > Order::ZERO => {
                        Err(Failed::Error(ShmemError::NoSpace))
                    }
                    InsertError::Busy | InsertError::Entry(_) => Err(Again.into()),
                }
            }
        }
    }

    /// Fills a folio, which the caller holds.
    fn read_pages(
        &self,
        context: &mut Context,
        first: SwapEntry,
        frame: u32,
        pages: u32,
    ) -> Result<(), Unreadable> {
        (0..pages).try_for_each(|step| {
            let mut start = self.frames.address(frame + step).cast::<Page>();
            // SAFETY: a page of the folio, which is held; any bytes are a page.
            let page = unsafe { start.as_mut() };
            let entry = first.checked_add(step.into()).ok_or(Unreadable)?;
            let read = self.swap.space().read(entry, &mut context.decoder, page, Movers::Running);
            read.map(drop).map_err(|_| Unreadable)
        })
    }

    /// Reads the page of `entry` into the swap cache, and with it those of its neighbours in swap
    /// that are likely to be wanted. The `wanted` pages from it on are known to be.
    pub(crate) fn read_around(&self, entry: SwapEntry, wanted: u64) -> Result<Arrived, Failed> {
        let frame = match self.enter_cache(entry, Order::ZERO, Urgency::SwapIn)? {
            Entered::New(frame, _) => frame,
            Entered::There(frame) => return Ok(Arrived::Cached(frame)),
        };
        let offset = entry.offset();
        let window = lock(&self.readahead).missed(offset as usize, PAGE_CLUSTER);
        let end = (window.end as u64).max(offset + wanted).min(offset + RUN as u64 - PAGE_CLUSTER as u64);
        let mut folios = Vec::with_capacity(RUN);
        for at in window.start as u64..end {
            if at == offset {
                folios.push((entry, frame));
                continue;
            }
            let Some(neighbour) = SwapEntry::new(entry.device(), at) else { continue };
            let is_out = matches!(self.swap.space().slots().word(neighbour), SlotWord::Shadow { .. });
            if !is_out || self.is_synchronous(neighbour) != self.is_synchronous(entry) {
                continue;
            }
            match self.enter_cache(neighbour, Order::ZERO, Urgency::Spare) {
                Ok(Entered::New(frame, _)) => folios.push((neighbour, frame)),
                Ok(Entered::There(_)) | Err(Failed::Again) => {}
                Err(Failed::Error(_)) if at > offset => break,
                Err(Failed::Error(_)) => {}
            }
        }
        self.swap.with(|context| self.read_runs(context, &folios));
        for &(_, neighbour) in folios.iter().filter(|&&(_, other)| other != frame) {
            if self.folios.of(neighbour).has(flag::UPTODATE) {
                self.folios.of(neighbour).set(flag::READAHEAD);
                count(&self.counters.swap_ra);
                self.lru.add(&self.folios, neighbour);
                self.folios.unlock(neighbour);
            } else {
                // The thread that asks for the page learns what is wrong.
                self.drop_cached(neighbour);
            }
        }
        add(&self.counters.pswpin, folios.len() as u64);
        Ok(Arrived::New(frame))
    }

    /// Fills single pages, which the caller holds. Those side by side on the file are read in one
    /// go.
    fn read_runs(&self, context: &mut Context, folios: &[(SwapEntry, u32)]) {
        let space = self.swap.space();
        let mut rest = folios;
        while let Some(&(entry, frame)) = rest.first() {
            let first = space.file_slot(entry);
            let beside =
                |(step, &(entry, _)): (usize, &(SwapEntry, u32))| match (first, space.file_slot(entry)) {
                    (Some(first), Some(slot)) => slot.raw() == first.raw() + step as u64,
                    _ => false,
                };
            let run = rest.iter().take(RUN).enumerate().take_while(|&at| beside(at)).count();
            let (now, later) = rest.split_at(run.max(1));
            rest = later;
            let (true, Some(slot)) = (run > 1, first) else {
                if self.read_pages(context, entry, frame, 1).is_ok() {
                    self.folios.of(frame).set(flag::UPTODATE);
                }
                continue;
            };
            let mut good = [false; RUN];
            if let Some(pages) = Context::pages(context.split().1, run) {
                let mut entries = [None; RUN];
                now.iter().zip(&mut entries).for_each(|(&(entry, _), into)| *into = Some(entry));
                good[..run].fill(true);
                space.read_run(&entries[..run], slot, pages, |bad, _| good[bad] = false);
                for (step, &(_, frame)) in now.iter().enumerate().filter(|&(step, _)| good[step]) {
                    let mut start = self.frames.address(frame).cast::<Page>();
                    // SAFETY: a page of our own folio, which is held.
                    *unsafe { start.as_mut() } = pages[step];
                    self.folios.of(frame).set(flag::UPTODATE);
                }
            }
            // The other pages are tried alone, so that no readable page is lost.
            for (step, &(entry, frame)) in now.iter().enumerate() {
                if !good[step] && self.read_pages(context, entry, frame, 1).is_ok() {
                    self.folios.of(frame).set(flag::UPTODATE);
                }
            }
        }
    }
}

/// A page could not be read back.
struct Unreadable;

/// Result of adding a folio to the swap cache.
enum Entered {
    /// In the swap cache, held by this thread, with its first entry.
    New(u32, SwapEntry),
    /// Another folio is in the swap cache already.
    There(u32),
}
