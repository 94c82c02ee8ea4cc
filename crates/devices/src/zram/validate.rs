//! Checks every invariant of the store, for tests and `doctor`.

use core::sync::atomic::Ordering;

use super::Zram;
use super::bin::{Bin, BinCounts, GROUPS};
use super::class::ClassId;
use super::geometry::{SPANS_PER_CHUNK, SpanId};
use super::header::Header;
use super::span::{SpanDesc, SpanList, SpanState};
use crate::memory::PageMemory;

/// The defect of a span or a list. A member reports its number to the supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Wrong {
    /// A span has no descriptor.
    NoDescriptor = 1,
    /// A span's state, class or fullness does not fit its list.
    OnWrongList = 2,
    /// A span's state does not fit its count of objects.
    StateAgainstCount = 3,
    /// There are more objects than carved slots, or more carved slots than fit.
    CountsOutOfOrder = 4,
    /// A slot's header cannot be decoded or is of another class.
    Header = 5,
    /// The headers say another number of objects, or of ends of the free list, than the counts.
    HeadersAgainstCounts = 6,
    /// The free list leads to a slot that is not free, or round in a circle.
    FreeList = 7,
    /// The free list is shorter than the counts say.
    FreeListLength = 8,
    /// Spans that should be on a list are on none.
    OnNoList = 9,
    /// A list goes round in a circle.
    Circle = 10,
    /// A list's tail or length does not fit its links.
    TailOrLength = 11,
}

/// The first defect found. `span` is an index over all chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invalid {
    /// A span's state, class or counts are impossible.
    Span {
        /// The span.
        span: u32,
        /// The defect.
        what: Wrong,
    },
    /// A list's links or length are wrong, or a span is on a list that does not fit its state.
    List {
        /// The defect.
        what: Wrong,
    },
    /// A class's figures are not the sum over its spans.
    Counts {
        /// Index of the class.
        class: usize,
    },
    /// The pool's count of used pages is not the sum over all spans.
    UsedPages {
        /// The pool's count.
        counted: u64,
        /// The sum over the spans.
        found: u64,
    },
}

impl Invalid {
    /// The defect as one number, for a message: its subject (1 span, 2 list, 3 a class's figures, 4
    /// used pages) above bit 56, the [`Wrong`] above bit 48, and the span or class below.
    pub const fn number(self) -> u64 {
        let (kind, what, which) = match self {
            Invalid::Span { span, what } => (1, what as u64, span as u64),
            Invalid::List { what } => (2, what as u64, 0),
            Invalid::Counts { class } => (3, 0, class as u64),
            Invalid::UsedPages { counted, found } => (4, 0, counted.abs_diff(found)),
        };
        kind << 56 | what << 48 | which
    }
}

impl<M: PageMemory> Zram<M> {
    /// Walks the whole store. The caller keeps every other operation out while it runs. Cost: a
    /// read of every header.
    ///
    /// # Errors
    ///
    /// The first [`Invalid`] state found.
    pub fn validate(&self) -> Result<(), Invalid> {
        let spans = self.directory.chunks() * SPANS_PER_CHUNK as u32;
        let mut on_lists = 0;
        for (list, state) in self.pool.lists() {
            on_lists +=
                self.check_list(list, spans, |desc| desc.state() == Some(state) && desc.live() == 0)?;
        }
        for class in ClassId::all() {
            for (group, list) in self.bin(class).lists().iter().enumerate() {
                on_lists += self.check_list(list, spans, |desc| {
                    desc.state() == Some(SpanState::Partial)
                        && desc.class_raw() == class.raw()
                        && (desc.live() as usize * GROUPS / class.per_span() as usize).min(GROUPS - 1)
                            == group
                })?;
            }
        }
        let mut used_pages = 0;
        let mut not_full = 0;
        for span in (0..spans).map(SpanId) {
            let desc =
                self.directory.span(span).ok_or(Invalid::Span { span: span.0, what: Wrong::NoDescriptor })?;
            used_pages += u64::from(desc.touched_pages());
            not_full += u32::from(desc.state() != Some(SpanState::Full));
        }
        if on_lists != not_full {
            return Err(Invalid::List { what: Wrong::OnNoList });
        }
        if used_pages != self.pool.used_pages() {
            return Err(Invalid::UsedPages { counted: self.pool.used_pages(), found: used_pages });
        }
        ClassId::all().try_for_each(|class| self.check_class(class, spans))
    }

    fn check_list(
        &self,
        list: &SpanList,
        spans: u32,
        fits: impl Fn(&SpanDesc) -> bool,
    ) -> Result<u32, Invalid> {
        let mut seen = 0;
        let mut last = None;
        let mut at = list.head();
        while let Some(span) = at {
            seen += 1;
            if seen > spans {
                return Err(Invalid::List { what: Wrong::Circle });
            }
            let desc = self.directory.span(span).ok_or(Invalid::List { what: Wrong::NoDescriptor })?;
            if !fits(desc) {
                return Err(Invalid::Span { span: span.0, what: Wrong::OnWrongList });
            }
            last = at;
            at = SpanList::after(&self.directory, span);
        }
        if list.tail() != last || list.len() != seen {
            return Err(Invalid::List { what: Wrong::TailOrLength });
        }
        Ok(seen)
    }

    fn check_class(&self, class: ClassId, spans: u32) -> Result<(), Invalid> {
        let mut sum = BinCounts::default();
        for span in (0..spans).map(SpanId) {
            let Some(desc) = self.directory.span(span) else { continue };
            if !matches!(desc.state(), Some(SpanState::Partial | SpanState::Full))
                || desc.class_raw() != class.raw()
            {
                continue;
            }
            sum.spans += 1;
            sum.objects += u64::from(desc.live());
            sum.carved += u64::from(desc.carved());
            sum.stored_bytes += self.check_span(class, span, desc)?;
        }
        let counts = self.bin(class).counts();
        let same = counts.spans == sum.spans
            && counts.objects == sum.objects
            && counts.carved == sum.carved
            && counts.stored_bytes == sum.stored_bytes;
        if same { Ok(()) } else { Err(Invalid::Counts { class: class.index() }) }
    }

    /// Checks one span of a class and returns its stored bytes.
    fn check_span(&self, class: ClassId, span: SpanId, desc: &SpanDesc) -> Result<u64, Invalid> {
        let wrong = |what| Invalid::Span { span: span.0, what };
        let full = desc.live() == class.per_span();
        if full != (desc.state() == Some(SpanState::Full)) || desc.live() == 0 {
            return Err(wrong(Wrong::StateAgainstCount));
        }
        if desc.carved() > class.per_span() || desc.live() > desc.carved() {
            return Err(wrong(Wrong::CountsOutOfOrder));
        }
        let (mut live, mut bytes, mut ends) = (0u16, 0, 0u16);
        for slot in Bin::carved_slots(&self.directory, class, span) {
            match Header::unpack(slot.header().load(Ordering::Relaxed)) {
                Some(Header::Live { len, .. }) if ClassId::for_len(len.bytes()) == class => {
                    live += 1;
                    bytes += len.bytes() as u64;
                }
                Some(Header::Free { next: None }) => ends += 1,
                Some(Header::Free { .. }) => {}
                _ => return Err(wrong(Wrong::Header)),
            }
        }
        let free = desc.carved() - desc.live();
        if live != desc.live() || ends != u16::from(free > 0) {
            return Err(wrong(Wrong::HeadersAgainstCounts));
        }
        let mut listed = 0;
        let mut at = desc.free_head();
        while let Some(index) = at {
            listed += 1;
            let slot = Bin::carved_slots(&self.directory, class, span).nth(index as usize);
            let header = slot.and_then(|slot| Header::unpack(slot.header().load(Ordering::Relaxed)));
            at = match header {
                Some(Header::Free { next }) if listed <= free => next,
                _ => return Err(wrong(Wrong::FreeList)),
            };
        }
        if listed == free { Ok(bytes) } else { Err(wrong(Wrong::FreeListLength)) }
    }
}
