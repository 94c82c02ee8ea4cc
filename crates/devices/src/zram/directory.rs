//! Finds a chunk and its span descriptors by index. The directory grows and never shrinks.
//!
//! A root in the store itself points to leaves. Each leaf is one mapping of 2 MiB that is touched
//! as far as it is used: about 330 bytes per 2 MiB of store. Lookups take no lock, because a
//! pointer is published once and stays.

use core::mem::size_of;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::geometry::{CHUNK_BYTES, CHUNKS_MAX, ChunkId, SPAN_BYTES, SPANS_PER_CHUNK, SpanId};
use super::span::SpanDesc;
use crate::memory::{PageMemory, Prefault};

const BYTES_PER_CHUNK: usize = size_of::<AtomicPtr<u8>>() + SPANS_PER_CHUNK * size_of::<SpanDesc>();
const CHUNKS_PER_LEAF: usize = CHUNK_BYTES / BYTES_PER_CHUNK;
/// 1024 leaves of about 6000 chunks of 2 MiB: 12 TiB of compressed pages.
const LEAVES: usize = 1024;

/// Most chunks that can be mapped.
const CHUNK_LIMIT: usize =
    if LEAVES * CHUNKS_PER_LEAF < CHUNKS_MAX { LEAVES * CHUNKS_PER_LEAF } else { CHUNKS_MAX };

/// All-zero memory is a fresh leaf: no chunk, every span descriptor in its initial state.
#[repr(C)]
struct Leaf {
    bases: [AtomicPtr<u8>; CHUNKS_PER_LEAF],
    spans: [[SpanDesc; SPANS_PER_CHUNK]; CHUNKS_PER_LEAF],
}

const _: () = assert!(size_of::<Leaf>() <= CHUNK_BYTES);

/// The directory. Growing needs the caller's lock; looking up needs none.
pub(super) struct Directory {
    leaves: [AtomicPtr<Leaf>; LEAVES],
    /// Number of mapped chunks; all below it are published.
    chunks: AtomicU32,
}

impl Directory {
    pub(super) const fn new() -> Self {
        Self { leaves: [const { AtomicPtr::new(core::ptr::null_mut()) }; LEAVES], chunks: AtomicU32::new(0) }
    }

    /// Number of mapped chunks.
    pub(super) fn chunks(&self) -> u32 {
        self.chunks.load(Ordering::Acquire)
    }

    /// Bytes of metadata touched: the descriptors of all mapped chunks.
    pub(super) fn metadata_bytes(&self) -> usize {
        self.chunks() as usize * BYTES_PER_CHUNK
    }

    /// Maps one more chunk, and says whether it is resident. `None` when the system has no memory
    /// or the directory is full.
    ///
    /// Context: the caller holds the pool's grow lock.
    pub(super) fn grow<M: PageMemory>(&self, memory: &M) -> Option<(ChunkId, Prefault)> {
        let index = self.chunks.load(Ordering::Relaxed) as usize;
        if index >= CHUNK_LIMIT {
            return None;
        }
        let leaf_cell = self.leaves.get(index / CHUNKS_PER_LEAF)?;
        if leaf_cell.load(Ordering::Relaxed).is_null() {
            leaf_cell.store(memory.map(CHUNK_BYTES)?.cast().as_ptr(), Ordering::Release);
        }
        let (base, resident) = memory.map_to_write(CHUNK_BYTES)?;
        self.base_cell(index)?.store(base.as_ptr(), Ordering::Release);
        self.chunks.store(index as u32 + 1, Ordering::Release);
        Some((ChunkId(index as u32), resident))
    }

    /// The leaf of a chunk: if not `None`, a mapped and valid [`Leaf`] for the life of the store.
    #[inline]
    fn leaf(&self, chunk: usize) -> Option<NonNull<Leaf>> {
        NonNull::new(self.leaves.get(chunk / CHUNKS_PER_LEAF)?.load(Ordering::Acquire))
    }

    #[inline]
    fn base_cell(&self, chunk: usize) -> Option<&AtomicPtr<u8>> {
        let leaf = self.leaf(chunk)?.as_ptr();
        // SAFETY: `grow` published this pointer. It is a mapping of at least a `Leaf`'s size, page
        // aligned, zeroed (a valid `Leaf`, all of it atomics), which stays mapped for the life of
        // the store by the contract of `PageMemory`. The reference is to one element, in bounds by
        // the index's modulus.
        Some(unsafe { &(*leaf).bases[chunk % CHUNKS_PER_LEAF] })
    }

    /// The descriptor of a span; `None` when its chunk does not exist.
    #[inline]
    pub(super) fn span(&self, span: SpanId) -> Option<&SpanDesc> {
        let chunk = span.chunk().0 as usize;
        let leaf = self.leaf(chunk)?.as_ptr();
        // SAFETY: as for `base_cell`.
        Some(unsafe { &(*leaf).spans[chunk % CHUNKS_PER_LEAF][span.in_chunk()] })
    }

    /// The first byte of a span; `None` when its chunk does not exist.
    #[inline]
    pub(super) fn base(&self, span: SpanId) -> Option<NonNull<u8>> {
        let base = NonNull::new(self.base_cell(span.chunk().0 as usize)?.load(Ordering::Acquire))?;
        // SAFETY: a chunk is CHUNK_BYTES long and holds SPANS_PER_CHUNK spans, so the offset stays
        // inside it.
        Some(unsafe { base.add(span.in_chunk() * SPAN_BYTES) })
    }
}
