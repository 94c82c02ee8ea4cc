//! The empty spans: kept resident for a while, given back in runs, one chunk always ahead.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::directory::Directory;
use super::geometry::{CHUNK_BYTES, SPAN_BYTES, SPANS_PER_CHUNK, SpanId};
use super::span::{SpanDesc, SpanList, SpanState};
use crate::lock::{Relax, SpinGuard, SpinLock};
use crate::memory::{PageMemory, Prefault};
use crate::page::PAGE_SIZE;

/// Most runs given back by one `put`, so that a free is never held up for long. Every run is at
/// least a span.
const RUNS_PER_PUT_MAX: u32 = 2;

/// The pool had no span, because the system gave no memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoSpan;

/// Empty spans of all classes.
pub(super) struct Pool {
    /// Protects both lists and the descriptors of the spans on them.
    lock: SpinLock,
    /// Serialises growing; taken before `lock`.
    grow: SpinLock,
    resident: SpanList,
    bare: SpanList,
    /// Pages of all spans that have been written and not been given back.
    used_pages: AtomicU64,
    used_pages_max: AtomicU64,
}

impl Pool {
    pub(super) const fn new() -> Self {
        Self {
            lock: SpinLock::new(),
            grow: SpinLock::new(),
            resident: SpanList::new(),
            bare: SpanList::new(),
            used_pages: AtomicU64::new(0),
            used_pages_max: AtomicU64::new(0),
        }
    }

    /// Pages with memory behind them, as far as the store knows.
    pub(super) fn used_pages(&self) -> u64 {
        self.used_pages.load(Relaxed)
    }

    /// The highest value of [`used_pages`](Self::used_pages) so far.
    pub(super) fn used_pages_max(&self) -> u64 {
        self.used_pages_max.load(Relaxed)
    }

    /// Counts pages that are about to be written for the first time.
    pub(super) fn add_used_pages(&self, pages: u64) {
        let now = self.used_pages.fetch_add(pages, Relaxed) + pages;
        if now > self.used_pages_max.load(Relaxed) {
            self.used_pages_max.fetch_max(now, Relaxed);
        }
    }

    /// Notes that a whole span, in the caller's hands and not resident before, is resident.
    pub(super) fn note_resident(&self, desc: &SpanDesc) {
        const PAGES: usize = SPAN_BYTES / PAGE_SIZE;
        self.add_used_pages(PAGES as u64);
        desc.set_touched_pages(PAGES as u16);
    }

    /// Takes an empty span, state Transit. Maps a chunk when fewer than one chunk of spans are
    /// left.
    pub(super) fn get<M: PageMemory>(
        &self,
        directory: &Directory,
        memory: &M,
        relax: Relax,
    ) -> Result<SpanId, NoSpan> {
        loop {
            let taken = {
                let _guard = self.lock.lock(relax);
                let taken = self.resident.pop_head(directory).or_else(|| self.bare.pop_head(directory));
                if let Some(desc) = taken.and_then(|span| directory.span(span)) {
                    desc.set_state(SpanState::Transit);
                }
                taken
            };
            if (self.resident.len() + self.bare.len()) < SPANS_PER_CHUNK as u32 {
                // A thread that holds a span leaves growing to the thread that is already growing,
                // if there is one.
                let guard = if taken.is_some() { self.grow.try_lock() } else { Some(self.grow.lock(relax)) };
                if let Some(guard) = guard {
                    self.grow(directory, memory, relax, guard);
                }
            }
            if let Some(span) = taken {
                return Ok(span);
            }
            if self.resident.len() + self.bare.len() == 0 {
                return Err(NoSpan);
            }
        }
    }

    /// Maps one chunk, unless the last holder of the grow lock has done so.
    fn grow<M: PageMemory>(&self, directory: &Directory, memory: &M, relax: Relax, _grow: SpinGuard<'_>) {
        if (self.resident.len() + self.bare.len()) >= SPANS_PER_CHUNK as u32 {
            return;
        }
        let Some((chunk, resident)) = directory.grow(memory) else { return };
        let _guard = self.lock.lock(relax);
        for span in chunk.spans().rev() {
            match (resident, directory.span(span)) {
                (Prefault::Done, Some(desc)) => {
                    self.note_resident(desc);
                    desc.set_state(SpanState::Resident);
                    self.resident.push_head(directory, span);
                }
                _ => self.bare.push_head(directory, span),
            }
        }
    }

    /// Takes back an empty span in state Transit, and gives memory back when more than
    /// `reserve_spans` are resident.
    pub(super) fn put<M: PageMemory>(
        &self,
        directory: &Directory,
        memory: &M,
        relax: Relax,
        span: SpanId,
        reserve_spans: u32,
    ) {
        {
            let _guard = self.lock.lock(relax);
            if let Some(desc) = directory.span(span) {
                desc.set_state(SpanState::Resident);
                self.resident.push_head(directory, span);
            }
        }
        // The hysteresis of one chunk lets neighbours accumulate, so that memory is given back in
        // runs.
        if self.resident.len() > reserve_spans + SPANS_PER_CHUNK as u32 {
            for _ in 0..RUNS_PER_PUT_MAX {
                if self.resident.len() <= reserve_spans {
                    break;
                }
                self.give_back_run(directory, memory, relax);
            }
        }
    }

    /// Gives the memory of all resident empty spans back; returns the bytes.
    pub(super) fn trim<M: PageMemory>(&self, directory: &Directory, memory: &M, relax: Relax) -> u64 {
        let mut bytes = 0;
        // The bound ends the loop although other threads may go on freeing.
        for _ in 0..directory.chunks() as usize * SPANS_PER_CHUNK {
            match self.give_back_run(directory, memory, relax) {
                0 => break,
                run => bytes += run,
            }
        }
        bytes
    }

    /// Gives back the run of neighbours around the span that has been empty longest; returns its
    /// bytes, 0 for none.
    fn give_back_run<M: PageMemory>(&self, directory: &Directory, memory: &M, relax: Relax) -> u64 {
        let (first, spans, pages) = {
            let _guard = self.lock.lock(relax);
            let Some(oldest) = self.resident.tail() else { return 0 };
            let resident = |span: SpanId| {
                directory.span(span).is_some_and(|desc| desc.state() == Some(SpanState::Resident))
            };
            let mut first = oldest;
            while first.in_chunk() > 0 && resident(SpanId(first.0 - 1)) {
                first = SpanId(first.0 - 1);
            }
            let mut spans = 0;
            let mut pages = 0;
            for span in first.chunk().spans().skip(first.in_chunk()).take_while(|&span| resident(span)) {
                self.resident.remove(directory, span);
                if let Some(desc) = directory.span(span) {
                    desc.set_state(SpanState::Transit);
                    pages += u64::from(desc.touched_pages());
                    desc.set_touched_pages(0);
                }
                spans += 1;
            }
            (first, spans, pages)
        };
        let bytes = spans as usize * SPAN_BYTES;
        debug_assert!(bytes <= CHUNK_BYTES);
        if let Some(start) = directory.base(first) {
            // SAFETY: the run lies inside one chunk, which is one mapping. Its spans are empty and,
            // in state Transit, on no list, so no other thread reads or writes them.
            unsafe { memory.give_back(start, bytes) };
        }
        self.used_pages.fetch_sub(pages, Relaxed);
        let _guard = self.lock.lock(relax);
        for span in (first.0..first.0 + spans).rev().map(SpanId) {
            if let Some(desc) = directory.span(span) {
                desc.set_state(SpanState::Bare);
                self.bare.push_head(directory, span);
            }
        }
        pages * PAGE_SIZE as u64
    }

    /// Numbers of empty spans: resident ones, bare ones.
    pub(super) fn counts(&self) -> (u32, u32) {
        (self.resident.len(), self.bare.len())
    }

    /// The two lists, for validation.
    pub(super) fn lists(&self) -> [(&SpanList, SpanState); 2] {
        [(&self.resident, SpanState::Resident), (&self.bare, SpanState::Bare)]
    }
}
