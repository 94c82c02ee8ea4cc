//! The spans of one size class: allocating and freeing slots.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use super::class::ClassId;
use super::directory::Directory;
use super::geometry::{SPAN_BYTES, SpanId};
use super::header::Header;
use super::pool::Pool;
use super::span::{SpanDesc, SpanList, SpanState};
use super::{FreeError, StoreError};
use crate::location::{Handle, StoredLen};
use crate::lock::{Relax, SpinGuard, SpinLock};
use crate::page::PAGE_SIZE;

/// Partial spans are kept by quarters of fullness: slots come from the fullest span, and the
/// compactor empties the emptiest.
pub(super) const GROUPS: usize = 4;

/// A slot: its name and its memory.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub(super) handle: Handle,
    pub(super) start: NonNull<u8>,
}

impl Slot {
    /// The slot's header.
    #[inline]
    pub(super) fn header(&self) -> &AtomicU64 {
        // SAFETY: a slot starts at a multiple of 32 bytes inside a mapped chunk, which stays mapped
        // for the life of the store (longer than `self`, because only the store's directory makes a
        // `Slot`). The first 8 bytes are only ever accessed as this atomic.
        unsafe { self.start.cast().as_ref() }
    }

    /// The first byte of the object.
    #[inline]
    pub(super) fn payload(&self) -> NonNull<u8> {
        // SAFETY: the smallest slot is 64 bytes, so the address stays inside it.
        unsafe { self.start.add(super::geometry::HEADER_BYTES) }
    }
}

/// The state of a span after one of its slots was released.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Released {
    /// The span still has objects, or the compactor is emptying it.
    SpanStays,
    /// The slot was the last one: the span is in state Transit and goes to the pool.
    SpanEmpty(SpanId),
}

/// Spans, lists and figures of one class. Aligned to a cache line, so that classes do not disturb
/// each other.
#[repr(align(64))]
pub(super) struct Bin {
    /// Protects the lists, the descriptors of the class's spans and the free lists in them.
    lock: SpinLock,
    partial: [SpanList; GROUPS],
    spans: AtomicU64,
    objects: AtomicU64,
    stored_bytes: AtomicU64,
    /// Slots carved from the spans, taken or free.
    carved: AtomicU64,
}

/// Figures of one class. Each is exact; together they are consistent only when no thread stores or
/// frees.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BinCounts {
    pub(super) spans: u64,
    pub(super) objects: u64,
    pub(super) stored_bytes: u64,
    pub(super) carved: u64,
}

fn group_of(live: u16, class: ClassId) -> usize {
    (live as usize * GROUPS / class.per_span() as usize).min(GROUPS - 1)
}

/// Adds under the lock. No read-modify-write is needed, but readers read without the lock.
fn bump(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

fn drop_by(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_sub(by), Ordering::Relaxed);
}

impl Bin {
    pub(super) const fn new() -> Self {
        Self {
            lock: SpinLock::new(),
            partial: [const { SpanList::new() }; GROUPS],
            spans: AtomicU64::new(0),
            objects: AtomicU64::new(0),
            stored_bytes: AtomicU64::new(0),
            carved: AtomicU64::new(0),
        }
    }

    pub(super) fn lock(&self, relax: Relax) -> SpinGuard<'_> {
        self.lock.lock(relax)
    }

    pub(super) fn counts(&self) -> BinCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        BinCounts {
            spans: get(&self.spans),
            objects: get(&self.objects),
            stored_bytes: get(&self.stored_bytes),
            carved: get(&self.carved),
        }
    }

    /// The lists, emptiest first.
    pub(super) fn lists(&self) -> &[SpanList; GROUPS] {
        &self.partial
    }

    /// Puts a span from the pool on the lists. Context: the lock is held.
    pub(super) fn adopt(&self, directory: &Directory, class: ClassId, span: SpanId) {
        if let Some(desc) = directory.span(span) {
            desc.begin(class.raw());
            desc.set_state(SpanState::Partial);
            self.partial[0].push_head(directory, span);
            bump(&self.spans, 1);
        }
    }

    /// Takes a slot from the fullest span that has one, header set to [`Header::FILLING`].
    /// `Ok(None)` when every span is full. Context: the lock is held.
    pub(super) fn take(
        &self,
        directory: &Directory,
        pool: &Pool,
        class: ClassId,
        len: StoredLen,
        used_pages_max: u64,
    ) -> Result<Option<Slot>, StoreError> {
        let mut refused = false;
        for group in (0..GROUPS).rev() {
            let Some(span) = self.partial[group].head() else { continue };
            let Some(desc) = directory.span(span) else { continue };
            let Some(base) = directory.base(span) else { continue };
            let slot = match self.pop_free(desc, base, span, class) {
                Some(slot) => Some(slot),
                None => self.carve(desc, base, span, class, pool, used_pages_max),
            };
            let Some(slot) = slot else {
                refused = true;
                continue;
            };
            slot.header().store(Header::FILLING.pack(), Ordering::Relaxed);
            let live = desc.live() + 1;
            desc.set_live(live);
            self.relist(directory, desc, span, class, group);
            bump(&self.objects, 1);
            bump(&self.stored_bytes, len.bytes() as u64);
            return Ok(Some(slot));
        }
        if refused { Err(StoreError::LimitReached) } else { Ok(None) }
    }

    /// Puts a span whose count went up on the list of its fullness.
    fn relist(&self, directory: &Directory, desc: &SpanDesc, span: SpanId, class: ClassId, from: usize) {
        if desc.live() >= class.per_span() {
            self.partial[from].remove(directory, span);
            desc.set_state(SpanState::Full);
        } else {
            let group = group_of(desc.live(), class);
            if group != from {
                self.partial[from].remove(directory, span);
                self.partial[group].push_head(directory, span);
            }
        }
    }

    fn slot_at(base: NonNull<u8>, span: SpanId, class: ClassId, slot: u16) -> Option<Slot> {
        if slot >= class.per_span() {
            return None;
        }
        let offset = slot as usize * class.slot_bytes();
        // SAFETY: a slot index below `per_span` starts inside its span, by the definition of
        // `per_span`.
        Some(Slot { handle: span.handle(offset)?, start: unsafe { base.add(offset) } })
    }

    fn pop_free(&self, desc: &SpanDesc, base: NonNull<u8>, span: SpanId, class: ClassId) -> Option<Slot> {
        let head = desc.free_head().filter(|&head| head < desc.carved())?;
        let slot = Self::slot_at(base, span, class, head)?;
        match Header::unpack(slot.header().load(Ordering::Relaxed)) {
            Some(Header::Free { next }) => desc.set_free_head(next),
            // The free list was overwritten. The rest of it is lost; the stored objects are not.
            _ => {
                desc.set_free_head(None);
                return None;
            }
        }
        Some(slot)
    }

    fn carve(
        &self,
        desc: &SpanDesc,
        base: NonNull<u8>,
        span: SpanId,
        class: ClassId,
        pool: &Pool,
        used_pages_max: u64,
    ) -> Option<Slot> {
        let carved = desc.carved();
        let slot = Self::slot_at(base, span, class, carved)?;
        let end = (carved as usize + 1) * class.slot_bytes();
        debug_assert!(end <= SPAN_BYTES);
        let pages = end.div_ceil(PAGE_SIZE) as u16;
        let more = pages.saturating_sub(desc.touched_pages());
        if more > 0 {
            if pool.used_pages() + u64::from(more) > used_pages_max {
                return None;
            }
            pool.add_used_pages(u64::from(more));
            desc.set_touched_pages(pages);
        }
        desc.set_carved(carved + 1);
        bump(&self.carved, 1);
        Some(slot)
    }

    /// Frees the slot at `offset` bytes of `span`. Context: the lock is held.
    pub(super) fn release(
        &self,
        directory: &Directory,
        class: ClassId,
        span: SpanId,
        offset: usize,
        len: StoredLen,
    ) -> Result<Released, FreeError> {
        let desc = directory.span(span).ok_or(FreeError::NotAnObject)?;
        let base = directory.base(span).ok_or(FreeError::NotAnObject)?;
        let index = (offset / class.slot_bytes()) as u16;
        let state = desc.state();
        let owned = matches!(state, Some(SpanState::Partial | SpanState::Full | SpanState::Isolated));
        if !owned
            || desc.class_raw() != class.raw()
            || !offset.is_multiple_of(class.slot_bytes())
            || index >= desc.carved()
            || desc.live() == 0
        {
            return Err(FreeError::NotAnObject);
        }
        let slot = Self::slot_at(base, span, class, index).ok_or(FreeError::NotAnObject)?;
        match Header::unpack(slot.header().load(Ordering::Relaxed)) {
            Some(Header::Live { len: stored, .. }) if stored == len => {}
            Some(Header::Free { .. }) => return Err(FreeError::NotAnObject),
            _ => return Err(FreeError::HeaderDamaged),
        }
        self.release_checked(directory, class, span, desc, slot, index, len);
        Ok(self.after_release(directory, span, desc))
    }

    #[allow(clippy::too_many_arguments)]
    fn release_checked(
        &self,
        directory: &Directory,
        class: ClassId,
        span: SpanId,
        desc: &SpanDesc,
        slot: Slot,
        index: u16,
        len: StoredLen,
    ) {
        slot.header().store(Header::Free { next: desc.free_head() }.pack(), Ordering::Relaxed);
        desc.set_free_head(Some(index));
        let before = desc.live();
        desc.set_live(before - 1);
        drop_by(&self.objects, 1);
        drop_by(&self.stored_bytes, len.bytes() as u64);
        match desc.state() {
            Some(SpanState::Full) => {
                desc.set_state(SpanState::Partial);
                self.partial[group_of(before - 1, class)].push_head(directory, span);
            }
            Some(SpanState::Partial) => {
                let (from, to) = (group_of(before, class), group_of(before - 1, class));
                if from != to {
                    self.partial[from].remove(directory, span);
                    self.partial[to].push_head(directory, span);
                }
            }
            _ => {}
        }
    }

    fn after_release(&self, directory: &Directory, span: SpanId, desc: &SpanDesc) -> Released {
        if desc.live() > 0 || desc.state() != Some(SpanState::Partial) {
            return Released::SpanStays;
        }
        self.expel(directory, span);
        Released::SpanEmpty(span)
    }

    /// Takes a span without objects off the lists and out of the class, to state Transit. Context:
    /// the lock is held.
    pub(super) fn expel(&self, directory: &Directory, span: SpanId) {
        let Some(desc) = directory.span(span) else { return };
        self.partial[0].remove(directory, span);
        self.disown(desc);
    }

    fn disown(&self, desc: &SpanDesc) {
        desc.set_state(SpanState::Transit);
        drop_by(&self.spans, 1);
        drop_by(&self.carved, u64::from(desc.carved()));
    }

    /// Takes a sparse span off its list, to be emptied, if the other partial spans can take its
    /// objects. Context: the lock is held.
    pub(super) fn isolate(&self, directory: &Directory, class: ClassId) -> Option<SpanId> {
        let counts = self.counts();
        let free = (counts.spans * u64::from(class.per_span())).checked_sub(counts.objects)?;
        let span = self.partial.iter().find_map(SpanList::tail)?;
        let desc = directory.span(span)?;
        let live = u64::from(desc.live());
        let free_elsewhere = free.checked_sub(u64::from(class.per_span()) - live)?;
        if free_elsewhere < live {
            return None;
        }
        self.partial[group_of(desc.live(), class)].remove(directory, span);
        desc.set_state(SpanState::Isolated);
        Some(span)
    }

    /// Ends an isolation: the span goes back on a list, or leaves the class when it has no objects.
    /// Context: the lock is held.
    pub(super) fn restore(&self, directory: &Directory, class: ClassId, span: SpanId) -> Released {
        let Some(desc) = directory.span(span) else { return Released::SpanStays };
        if desc.live() == 0 {
            self.disown(desc);
            return Released::SpanEmpty(span);
        }
        // An isolated span cannot be full: it was partial, and it gains no object while isolated.
        desc.set_state(SpanState::Partial);
        self.partial[group_of(desc.live(), class)].push_head(directory, span);
        Released::SpanStays
    }

    /// The carved slots of a span. Context: the span is isolated, or no thread stores or frees.
    pub(super) fn carved_slots(
        directory: &Directory,
        class: ClassId,
        span: SpanId,
    ) -> impl Iterator<Item = Slot> + '_ {
        let carved = directory.span(span).map_or(0, SpanDesc::carved);
        let base = directory.base(span);
        (0..carved).filter_map(move |index| Self::slot_at(base?, span, class, index))
    }
}
