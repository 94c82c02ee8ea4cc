//! Finding the folio of a page: resident, swapped in, or new.

use super::{Inner, ObjectOf};
use crate::counters::count;
use crate::error::ShmemError;
use crate::folio::flag;
use crate::frames::PAGE;
use crate::map::Changed;
use crate::options::HugePolicy;
use crate::space::{ShmemSpace, Urgency};
use crate::swapin::Failed;
use crate::sync::{Relaxed, yield_now};
use crate::variant::Variant;
use crate::word::{Found, Item};
use folioswap_slots::Order;

/// How a folio is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    Shared,
    Exclusive,
}

/// A folio of an object, held: until this is dropped it stays in the map, and its contents do not
/// change under a reader.
pub(crate) struct Held<'s> {
    space: &'s ShmemSpace,
    pub(crate) frame: u32,
    /// Index of its first page in the object.
    pub(crate) index: u64,
    pub(crate) order: Order,
    hold: Hold,
}

impl<'s> Held<'s> {
    /// Takes over a lock that the caller has.
    pub(crate) fn new(space: &'s ShmemSpace, frame: u32, index: u64, hold: Hold) -> Held<'s> {
        Held { space, frame, index, order: space.folios.of(frame).order(), hold }
    }

    pub(crate) fn start(&self) -> u64 {
        self.index * PAGE as u64
    }
    pub(crate) fn end(&self) -> u64 {
        self.start() + ((PAGE as u64) << self.order.index())
    }

    /// Its bytes, from `offset` of the object to `end` or its own end.
    pub(crate) fn bytes(&self, offset: u64, end: u64) -> &[u8] {
        let (from, to) = (offset - self.start(), end.min(self.end()) - self.start());
        let start = self.space.frames.address(self.frame);
        // SAFETY: within the folio; it is held, so no thread writes: a writer holds it exclusively,
        // which excludes this holder.
        unsafe { std::slice::from_raw_parts(start.as_ptr().add(from as usize), (to - from) as usize) }
    }

    /// The same, to be written.
    pub(crate) fn bytes_mut(&mut self, offset: u64, end: u64) -> &mut [u8] {
        assert!(self.hold == Hold::Exclusive);
        self.space.give_copy_up(self.frame);
        let (from, to) = (offset - self.start(), end.min(self.end()) - self.start());
        let start = self.space.frames.address(self.frame);
        // SAFETY: within the folio, which this thread alone holds.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr().add(from as usize), (to - from) as usize) }
    }

    /// Leaves the lock to the caller.
    pub(crate) fn into_frame(self) -> u32 {
        let frame = self.frame;
        std::mem::forget(self);
        frame
    }

    /// Lets other readers in.
    pub(crate) fn downgrade(mut self) -> Held<'s> {
        if self.hold == Hold::Exclusive {
            self.space.folios.downgrade(self.frame);
            self.hold = Hold::Shared;
        }
        self
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        match self.hold {
            Hold::Exclusive => self.space.folios.unlock(self.frame),
            Hold::Shared => self.space.folios.unshare(self.frame),
        }
    }
}

impl<V: Variant> ObjectOf<V> {
    /// Holds the folio that the map had at `index`, if it still has it.
    pub(crate) fn hold(&self, index: u64, found: Found, hold: Hold) -> Option<Held<'_>> {
        let Item::Folio(frame) = found.item.round_down(found.order) else { return None };
        match hold {
            Hold::Shared => self.space.folios.share(frame),
            Hold::Exclusive => self.space.folios.lock(frame),
        }
        if self.inner.map.get(index) == Some(found) {
            let first = index & !(u64::from(found.order.slots()) - 1);
            let held = Held::new(&self.space, frame, first, hold);
            self.folio(frame).set(flag::REFERENCED);
            return Some(held);
        }
        match hold {
            Hold::Shared => self.space.folios.unshare(frame),
            Hold::Exclusive => self.space.folios.unlock(frame),
        }
        None
    }

    /// The folio of a page; `None` for a hole. `wanted` is the number of pages from it on that will
    /// be asked for.
    pub(crate) fn existing(
        &self,
        index: u64,
        hold: Hold,
        wanted: u64,
    ) -> Result<Option<Held<'_>>, ShmemError> {
        loop {
            let Some(found) = self.inner.map.get(index) else { return Ok(None) };
            match found.item {
                Item::Folio(_) => {
                    if let Some(held) = self.hold(index, found, hold) {
                        return Ok(Some(held));
                    }
                }
                Item::Swap(_) => match self.swap_in(index, found, wanted) {
                    Ok(held) if hold == Hold::Shared => return Ok(Some(held.downgrade())),
                    Ok(held) => return Ok(Some(held)),
                    Err(Failed::Again) => {
                        count(&self.space.counters.retries);
                        yield_now();
                    }
                    Err(Failed::Error(error)) => return Err(error),
                },
                Item::Poison => return Err(ShmemError::Io { index }),
            }
        }
    }

    /// The folio of a page, made if it is a hole. `wanted` is the range of bytes that will be
    /// written or allocated; the order follows from it. The bytes of a new folio outside of
    /// `written` are zeroed.
    pub(crate) fn existing_or_new(
        &self,
        index: u64,
        wanted: std::ops::Range<u64>,
        written: std::ops::Range<u64>,
    ) -> Result<Obtained<'_>, ShmemError> {
        loop {
            let wanted_pages = wanted.end.div_ceil(PAGE as u64).saturating_sub(index);
            match self.existing(index, Hold::Exclusive, wanted_pages) {
                Ok(Some(held)) => return Ok(Obtained::Existing(held)),
                Ok(None) => {}
                Err(ShmemError::Io { .. }) if covers(&written, index) => {
                    // The lost page is overwritten as a whole.
                    self.remove_poison(index);
                    continue;
                }
                Err(error) => return Err(error),
            }
            let mut order = self.order_for(index, &wanted);
            loop {
                match self.try_new(index, order, &written) {
                    Ok(held) => return Ok(Obtained::New(held)),
                    Err(NewError::Changed) if order == Order::ZERO => break,
                    Err(NewError::NoSpace) if order == Order::ZERO => return Err(ShmemError::NoSpace),
                    Err(_) => order = Order::new(order.index() as u32 - 1).unwrap_or(Order::ZERO),
                }
            }
        }
    }

    fn try_new(
        &self,
        index: u64,
        order: Order,
        written: &std::ops::Range<u64>,
    ) -> Result<Held<'_>, NewError> {
        let pages = u64::from(order.slots());
        let urgency = if order == Order::ZERO { Urgency::Write } else { Urgency::Large };
        let first = index & !(pages - 1);
        // A look before the work; the look that counts is made under the lock.
        self.inner.map.lock().expect_empty(first, order)?;
        self.space.charge_content(pages).map_err(|_| NewError::NoSpace)?;
        let Some(frame) = self.space.new_folio(order, urgency) else {
            self.space.uncharge_content(pages);
            return Err(NewError::NoSpace);
        };
        let mut held = Held::new(&self.space, frame, first, Hold::Exclusive);
        let (start, end) = (held.start(), held.end());
        let from = written.start.clamp(start, end);
        let to = written.end.clamp(from, end);
        held.bytes_mut(start, from).fill(0);
        held.bytes_mut(to, end).fill(0);
        self.folio(frame).set(flag::UPTODATE);
        let mut map = self.inner.map.lock();
        if let Err(Changed) = map.expect_empty(first, order) {
            drop(map);
            self.space.uncharge_content(pages);
            self.space.free_folio(held.into_frame());
            return Err(NewError::Changed);
        }
        self.inner.adopt(&self.space, frame, first);
        map.store(first, order, Some(Item::Folio(frame)));
        self.inner.pages.fetch_add(pages, Relaxed);
        drop(map);
        self.space.lru.add(&self.space.folios, frame);
        Ok(held)
    }

    /// The largest order whose naturally aligned folio around `index` lies within what is wanted.
    fn order_for(&self, index: u64, wanted: &std::ops::Range<u64>) -> Order {
        let size = self.size().max(wanted.end);
        let large = match self.inner.huge {
            HugePolicy::Always | HugePolicy::WithinSize => true,
            HugePolicy::Advise => self.inner.advised.load(Relaxed),
            HugePolicy::Never => false,
        };
        if !large {
            return Order::ZERO;
        }
        let page = PAGE as u64;
        let end = wanted.end.next_multiple_of(page);
        let end = if self.inner.huge == HugePolicy::WithinSize {
            end.min(size.next_multiple_of(page))
        } else {
            end
        };
        let range = wanted.start / page..end / page;
        let fits = |order: &Order| {
            let pages = u64::from(order.slots());
            let first = index & !(pages - 1);
            range.start <= first && first + pages <= range.end
        };
        Order::all().rev().find(fits).unwrap_or(Order::ZERO)
    }
}

/// Whether the whole page lies within the range of bytes.
fn covers(bytes: &std::ops::Range<u64>, index: u64) -> bool {
    let start = index * PAGE as u64;
    bytes.start <= start && start + PAGE as u64 <= bytes.end
}

/// Result of [`ObjectOf::existing_or_new`].
pub(crate) enum Obtained<'s> {
    /// The page had a folio.
    Existing(Held<'s>),
    /// The page was a hole, and has this folio now.
    New(Held<'s>),
}

enum NewError {
    NoSpace,
    Changed,
}

impl From<Changed> for NewError {
    fn from(_: Changed) -> Self {
        NewError::Changed
    }
}

impl Inner {
    /// Records the object as the folio's owner. The caller holds the folio exclusively, and the
    /// map's lock.
    pub(crate) fn adopt(&self, space: &ShmemSpace, frame: u32, index: u64) {
        let folio = space.folios.of(frame);
        folio.object.store(std::ptr::from_ref(self) as u64, Relaxed);
        folio.index.store(index, Relaxed);
    }
}
