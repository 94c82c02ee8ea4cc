//! Taking pages out of an object: truncation, holes.

use super::find::{Held, Hold};
use super::{ObjectOf, end_of};
use crate::error::ShmemError;
use crate::frames::PAGE;
use crate::map::Look;
use crate::sync::{Relaxed, Release, SeqCst, write_lock};
use crate::variant::Variant;
use crate::word::{Found, Item};
use folioswap_slots::Order;

impl<V: Variant> ObjectOf<V> {
    /// Sets the size. Pages behind a smaller one are freed, and read as zeroes if the object grows
    /// again.
    ///
    /// # Errors
    /// [`ShmemError`] if the page in which the new end lies is swapped out and cannot come back;
    /// nothing is changed then.
    pub fn set_size(&self, size: u64) -> Result<(), ShmemError> {
        end_of(0, size)?;
        let _alone = write_lock(&self.inner.content);
        let page = PAGE as u64;
        if size > self.size() {
            self.grow_to(size);
            return Ok(());
        }
        self.zero_within_page(size, size.next_multiple_of(page))?;
        self.inner.size.store(size, Release);
        self.remove_pages(size.div_ceil(page), u64::MAX);
        Ok(())
    }

    /// Frees a range of bytes: it reads as zeroes from now on. The size stays.
    ///
    /// # Errors
    /// As [`set_size`](Self::set_size), for the pages at both ends.
    pub fn punch_hole(&self, offset: u64, len: u64) -> Result<(), ShmemError> {
        let end = end_of(offset, len)?;
        let _alone = write_lock(&self.inner.content);
        self.punch(offset, end)
    }

    /// Frees the range. The caller holds `content` for writing.
    pub(super) fn punch(&self, offset: u64, end: u64) -> Result<(), ShmemError> {
        let page = PAGE as u64;
        let (first, last) = (offset.next_multiple_of(page), end / page * page);
        if first > last {
            return self.zero_within_page(offset, end);
        }
        self.zero_within_page(offset, first)?;
        self.zero_within_page(last, end)?;
        self.remove_pages(first / page, last / page);
        Ok(())
    }

    /// Takes the pages `from..to` out of the map, and frees them.
    pub(crate) fn remove_pages(&self, from: u64, to: u64) {
        let mut index = from;
        while let Some((first, found)) = self.inner.map.next(index, Look::Present) {
            if first >= to {
                break;
            }
            let end = first + u64::from(found.order.slots());
            if first < from || end > to {
                self.split(first, found);
                continue;
            }
            match found.item {
                Item::Folio(_) => self.remove_folio(first, found),
                Item::Swap(_) | Item::Poison => self.remove_swapped(first, found),
            }
            // Pages that are still there, because they changed meanwhile, are found again.
            index = first.max(from);
        }
    }

    fn remove_folio(&self, first: u64, found: Found) {
        let Some(held) = self.hold(first, found, Hold::Exclusive) else { return };
        let pages = u64::from(held.order.slots());
        self.inner.map.lock().store(first, held.order, None);
        self.inner.pages.fetch_sub(pages, Relaxed);
        self.space.uncharge_content(pages);
        self.space.give_copy_up(held.frame);
        self.space.free_folio(held.into_frame());
    }

    fn remove_swapped(&self, first: u64, found: Found) {
        let mut map = self.inner.map.lock();
        if map.get(first) != Some(found) {
            return;
        }
        map.store(first, found.order, None);
        drop(map);
        let pages = u64::from(found.order.slots());
        if let Item::Swap(entry) = found.item {
            self.inner.swapped.fetch_sub(pages, SeqCst);
            self.space.free_swap(entry, found.order.slots());
        }
        self.inner.pages.fetch_sub(pages, Relaxed);
        self.space.uncharge_content(pages);
    }

    /// Makes a lost page a hole.
    pub(super) fn remove_poison(&self, index: u64) {
        if let Some(found) = self.inner.map.get(index).filter(|found| found.item == Item::Poison) {
            self.remove_swapped(index, found);
        }
    }

    /// Splits an item into single pages, if it is still there.
    fn split(&self, first: u64, found: Found) {
        match found.item {
            Item::Folio(_) => {
                if let Some(held) = self.hold(first, found, Hold::Exclusive) {
                    self.split_folio(held);
                }
            }
            Item::Swap(_) | Item::Poison => {
                let mut map = self.inner.map.lock();
                if map.get(first) == Some(found) {
                    map.split(first, Order::ZERO);
                }
            }
        }
    }

    /// Splits a large folio into single pages. It must not be in the swap cache.
    pub(crate) fn split_folio(&self, held: Held<'_>) {
        let (frame, index, pages) = (held.frame, held.index, held.order.slots());
        self.space.give_copy_up(frame);
        self.space.lru.remove(&self.space.folios, frame);
        let first = held.into_frame();
        self.inner.split_folio(&self.space, first, index, pages);
        (frame..frame + pages).for_each(|frame| {
            self.space.lru.add(&self.space.folios, frame);
            self.space.folios.unlock(frame);
        });
    }
}

impl super::Inner {
    /// Makes each page of a large folio a folio of its own, held exclusively by the caller as the
    /// large one was, and on no list.
    pub(crate) fn split_folio(&self, space: &crate::space::ShmemSpace, first: u32, index: u64, pages: u32) {
        use crate::folio::flag;
        let referenced = if space.folios.of(first).has(flag::REFERENCED) { flag::REFERENCED } else { 0 };
        for page in 1..pages {
            space.folios.lock(first + page);
        }
        let mut map = self.map.lock();
        for page in 0..pages {
            space.folios.of(first + page).begin(Order::ZERO, flag::UPTODATE | referenced);
            self.adopt(space, first + page, index + u64::from(page));
        }
        map.split(index, Order::ZERO);
    }
}
