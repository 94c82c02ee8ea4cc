//! The basic sizes of the store, and the index types.

use crate::location::Handle;

/// Bytes requested from the caller's memory at a time.
pub(super) const CHUNK_BYTES: usize = 2 << 20;
/// Bytes of a span, the range of memory that one size class cuts into slots.
///
/// Measured with `cargo bench --bench utilisation`, 256 MiB of pages that compress 2:1: filled, 64
/// KiB spans use 97.6 % of their memory, 128 KiB 98.4 %, 256 KiB 98.6 %; after five times as many
/// random replacements 95.9, 95.6 and 95.6 %.
pub(super) const SPAN_BYTES: usize = 128 << 10;
/// Slots start at multiples of a granule, and handles count in granules.
pub(super) const GRANULE_BYTES: usize = 32;
/// The header before each object: see [`super::header`].
pub(super) const HEADER_BYTES: usize = 8;

/// Spans in a chunk.
pub(super) const SPANS_PER_CHUNK: usize = CHUNK_BYTES / SPAN_BYTES;
const GRANULES_PER_CHUNK: u64 = (CHUNK_BYTES / GRANULE_BYTES) as u64;
/// Chunks that a handle can name.
pub(super) const CHUNKS_MAX: usize = 1 << (Handle::BITS - GRANULES_PER_CHUNK.ilog2());

const _: () =
    assert!(CHUNKS_MAX * SPANS_PER_CHUNK < u32::MAX as usize, "a span index and 'none' fit 32 bits");
const _: () = assert!(SPAN_BYTES / 64 < u16::MAX as usize, "a slot index and 'none' fit 16 bits");

/// Index of a chunk, in order of mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkId(pub(super) u32);

impl ChunkId {
    /// The spans of this chunk.
    pub(super) fn spans(self) -> impl DoubleEndedIterator<Item = SpanId> {
        let first = self.0 * SPANS_PER_CHUNK as u32;
        (first..first + SPANS_PER_CHUNK as u32).map(SpanId)
    }
}

/// Index of a span, over all chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SpanId(pub(super) u32);

impl SpanId {
    #[inline]
    pub(super) const fn chunk(self) -> ChunkId {
        ChunkId(self.0 / SPANS_PER_CHUNK as u32)
    }

    /// Index of the span in its chunk.
    #[inline]
    pub(super) const fn in_chunk(self) -> usize {
        self.0 as usize % SPANS_PER_CHUNK
    }

    /// The handle of the slot that starts `offset_bytes` into this span.
    #[inline]
    pub(super) fn handle(self, offset_bytes: usize) -> Option<Handle> {
        let granule = (self.in_chunk() * SPAN_BYTES + offset_bytes) / GRANULE_BYTES;
        Handle::from_raw(self.chunk().0 as u64 * GRANULES_PER_CHUNK + granule as u64)
    }

    /// The span in which a handle lies, and the byte offset in it.
    #[inline]
    pub(super) fn of(handle: Handle) -> (Self, usize) {
        let chunk = handle.raw() / GRANULES_PER_CHUNK;
        let byte = (handle.raw() % GRANULES_PER_CHUNK) as usize * GRANULE_BYTES;
        (Self((chunk as usize * SPANS_PER_CHUNK + byte / SPAN_BYTES) as u32), byte % SPAN_BYTES)
    }
}
