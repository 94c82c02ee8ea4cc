//! Compaction: objects of sparse spans move into fuller ones, so that the memory of the sparse
//! spans can be given back.
//!
//! Protocol, for one object:
//!
//! 1. Its span is *isolated* under the class's lock: off the lists, so no slot in it is handed out
//!    any more. Slots in it may still be freed.
//! 2. Its header is read. "Live" means that its bytes are complete. No slot of the span is reused,
//!    so they do not change until the isolation ends, even if the object is freed meanwhile (a free
//!    writes the header only).
//! 3. The bytes are copied to a new slot of another span, under no lock.
//! 4. The caller's callback exchanges the location word from old to new if it is exactly old and
//!    not LOCKed. If that succeeds, the object was live all along, no reader holds it, and every
//!    later reader finds the copy; the old slot is freed. If it fails (freed, replaced, being
//!    read), the new slot is freed.
//! 5. In the end the span, usually empty, goes to the pool, or back to the lists with its remaining
//!    objects.
//!
//! The callback holds none of the store's locks and may wait for anything but this compaction.

use core::sync::atomic::Ordering;

use super::Zram;
use super::bin::{Bin, Released, Slot};
use super::class::ClassId;
use super::geometry::SpanId;
use super::header::Header;
use crate::location::{Handle, Owner, StoredLen};
use crate::memory::PageMemory;

/// An object that has been copied and waits for its location to be exchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relocation {
    /// The object's owner.
    pub owner: Owner,
    /// The old object.
    pub old: Handle,
    /// The copy.
    pub new: Handle,
    /// The object's length; unchanged, like its checksum.
    pub len: StoredLen,
}

/// The callback's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The location now names the new object. The old one belongs to the compactor, which frees it.
    Moved,
    /// The location did not name the old object, or is locked; the copy is dropped.
    Kept,
}

/// The work of one compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompactReport {
    /// Objects moved.
    pub objects_moved: u64,
    /// Their bytes.
    pub bytes_moved: u64,
    /// Objects that stayed because the callback said so.
    pub objects_kept: u64,
    /// Spans emptied; [`Zram::trim`] gives their memory back to the system.
    pub spans_freed: u64,
}

/// The outcome for one object.
enum Step {
    Moved,
    Kept,
    /// There was no object, or it was freed meanwhile.
    Nothing,
    /// There is no slot to which it could move.
    Stuck,
}

/// Whether a class is worth another step of compaction.
enum ClassState {
    /// It may have more spans whose objects fit elsewhere.
    Sparse,
    /// It wastes little, or the remaining objects have no other slot.
    Compact,
}

impl<M: PageMemory> Zram<M> {
    /// Moves objects out of sparse spans, up to about `budget_bytes` of them, in classes that waste
    /// more than
    /// [`StoreOptions::compact_above_percent`](super::StoreOptions::compact_above_percent) of their
    /// carved slots.
    ///
    /// For each object `relocate` is asked to exchange its location; see the module's protocol and
    /// [`LocationCell::relocate`](crate::location::LocationCell::relocate). Takes no new memory.
    /// Cost: about 1 µs per object at 2:1 (a copy of bytes that are in no cache) and the callback.
    /// Runs beside stores, loads and frees, and beside itself.
    pub fn compact(
        &self,
        budget_bytes: u64,
        mut relocate: impl FnMut(Relocation) -> Verdict,
    ) -> CompactReport {
        let mut report = CompactReport::default();
        for class in ClassId::all() {
            // A span that could not be emptied goes back on the lists; the bound keeps it from
            // being tried for ever.
            for _ in 0..self.bin(class).counts().spans {
                if report.bytes_moved >= budget_bytes {
                    return report;
                }
                match self.compact_one_span(class, &mut report, &mut relocate) {
                    ClassState::Sparse => {}
                    ClassState::Compact => break,
                }
            }
        }
        report
    }

    /// Empties one span, if the class has one that is worth it.
    fn compact_one_span(
        &self,
        class: ClassId,
        report: &mut CompactReport,
        relocate: &mut impl FnMut(Relocation) -> Verdict,
    ) -> ClassState {
        let bin = self.bin(class);
        let span = {
            let _guard = bin.lock(self.options.relax);
            let counts = bin.counts();
            let holes = counts.carved.saturating_sub(counts.objects);
            if holes * 100 <= counts.carved * u64::from(self.options.compact_above_percent) {
                return ClassState::Compact;
            }
            match bin.isolate(&self.directory, class) {
                Some(span) => span,
                None => return ClassState::Compact,
            }
        };
        let mut state = ClassState::Sparse;
        for old in Bin::carved_slots(&self.directory, class, span) {
            match self.move_object(class, old, relocate) {
                (Step::Moved, len) => {
                    report.objects_moved += 1;
                    report.bytes_moved += len;
                }
                (Step::Kept, _) => report.objects_kept += 1,
                (Step::Nothing, _) => {}
                (Step::Stuck, _) => {
                    state = ClassState::Compact;
                    break;
                }
            }
        }
        let released = self.end_isolation(class, span);
        if let Released::SpanEmpty(span) = released {
            report.spans_freed += 1;
            let pages = self.directory.span(span).map_or(0, |desc| u64::from(desc.touched_pages()));
            self.pages_compacted.fetch_add(pages, Ordering::Relaxed);
        }
        self.settle(released);
        state
    }

    fn end_isolation(&self, class: ClassId, span: SpanId) -> Released {
        let bin = self.bin(class);
        let _guard = bin.lock(self.options.relax);
        bin.restore(&self.directory, class, span)
    }

    fn move_object(
        &self,
        class: ClassId,
        old: Slot,
        relocate: &mut impl FnMut(Relocation) -> Verdict,
    ) -> (Step, u64) {
        // Acquire: pairs with the Release of `store`, so that a live header means complete bytes.
        let Some(Header::Live { owner, len }) = Header::unpack(old.header().load(Ordering::Acquire)) else {
            return (Step::Nothing, 0);
        };
        // A damaged header may claim more than its slot holds.
        if len.bytes() + super::geometry::HEADER_BYTES > class.slot_bytes() {
            return (Step::Nothing, 0);
        }
        let bin = self.bin(class);
        let taken = {
            let _guard = bin.lock(self.options.relax);
            bin.take(&self.directory, &self.pool, class, len, self.used_pages_limit())
        };
        let Ok(Some(new)) = taken else { return (Step::Stuck, 0) };
        // SAFETY: both slots belong to `class`, whose slots hold `len` bytes and a header. The new
        // one was just allocated and is used by nobody else. The old one's bytes were complete when
        // its header said live, and are not written while its span is isolated: no slot of it is
        // handed out, and a free writes the header alone.
        unsafe { new.payload().copy_from_nonoverlapping(old.payload(), len.bytes()) };
        new.header().store(Header::Live { owner, len }.pack(), Ordering::Release);
        let (step, dropped) = match relocate(Relocation { owner, old: old.handle, new: new.handle, len }) {
            Verdict::Moved => (Step::Moved, old.handle),
            Verdict::Kept => (Step::Kept, new.handle),
        };
        let (span, offset) = SpanId::of(dropped);
        let released = {
            let _guard = bin.lock(self.options.relax);
            bin.release(&self.directory, class, span, offset, len)
        };
        if let Ok(released) = released {
            self.settle(released);
        }
        (step, len.bytes() as u64)
    }
}
