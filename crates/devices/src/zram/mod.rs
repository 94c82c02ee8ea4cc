//! The compressed RAM device: an object store for pages of 4 KiB.
//!
//! **Layout.** Memory comes in chunks of 2 MiB from a [`PageMemory`] and is cut into spans of 128
//! KiB. A span in use belongs to one size class and is cut into slots. An object is a header of 8
//! bytes (owner and length) and up to 4096 stored bytes, and may straddle pages. A handle is the
//! object's address in granules of 32 bytes. The descriptors of spans lie outside of them, found by
//! index. Empty spans belong to no class, keep their memory up to a small reserve, and are given
//! back to the system in runs.
//!
//! **Locking.** A class's spin lock protects its spans, the pool's protects empty spans; no thread
//! holds both. Copying, compression and checking run under no lock at all. Loading takes no lock.
//!
//! **The caller's obligations.** Between reading a handle from its table and the end of
//! [`load`](Zram::load) or [`free`](Zram::free), the caller holds that location's LOCK bit
//! ([`LocationCell`](crate::location::LocationCell)); a handle is freed once. The compactor moves
//! an object only by an exchange of the location word that fails while the bit is set, so an object
//! neither moves nor vanishes under its reader.
//!
//! **A store in a forked child** is the copy-on-write copy of all this memory at the same
//! addresses. The store refers to no process, thread or descriptor; the caller keeps every
//! operation out of the moment of the fork.

mod bin;
mod class;
mod compact;
mod directory;
mod error;
mod geometry;
mod header;
mod pool;
mod recompress;
mod span;
mod stats;
mod validate;

use core::fmt;
use core::ptr::NonNull;
use core::slice;
use core::sync::atomic::{AtomicU64, Ordering};

pub use compact::{CompactReport, Relocation, Verdict};
pub use error::{FreeError, LoadError, StoreError};
pub use recompress::Recompressed;
pub use stats::MmStat;
pub use validate::{Invalid, Wrong};

use crate::base_delta;
use crate::checksum::Checksum;
use crate::location::{Codec, Handle, Owner, StoredLen};
use crate::lz4;
use crate::memory::{PageMemory, Prefault};
use crate::page::{PAGE_SIZE, Page, same_filled};
use crate::zstd;
use bin::{Bin, Released, Slot};
use class::{CLASSES, ClassId};
use directory::Directory;
use geometry::{SPAN_BYTES, SpanId};
use header::Header;
use pool::Pool;

/// Nanoseconds to read one page back, as an order of magnitude: expanding 4 KiB that compress 2:1.
/// For choosing between kinds of devices.
pub const READ_NS: u32 = 2_000;

/// Spans that a class has before its next ones become resident at once.
const PREFAULT_FROM: u64 = 4;

/// The treatment of a page that does not shrink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IncompressiblePolicy {
    /// Store nothing and return [`Stored::Incompressible`]; the page goes to the next tier.
    Refuse,
    /// Store the page uncompressed.
    Keep,
}

/// The options of a store, fixed when it is made.
#[derive(Debug, Clone, Copy)]
pub struct StoreOptions {
    /// The treatment of a page that compresses to more than `huge_above`.
    pub incompressible: IncompressiblePolicy,
    /// Longest compressed length, in bytes, that counts as compressed. Clamped to 4095.
    pub huge_above: u16,
    /// Most memory in use, in bytes, metadata not counted; 0 for no limit.
    pub mem_limit: u64,
    /// Memory of empty spans that is kept for reuse, in bytes. Up to 2 MiB more may stay before it
    /// is given back.
    pub empty_reserve: u64,
    /// A class is compacted when more than this part of its carved slots is free, in percent.
    pub compact_above_percent: u8,
    /// Called by a thread between rounds of spinning on a lock, for example `sched_yield`.
    pub relax: fn(),
}

impl StoreOptions {
    /// Refuse pages that stay above 3904 bytes, no limit, 4 MiB of empty reserve, compaction above
    /// 20 % waste, and a relax hook that only pauses the CPU.
    pub const DEFAULT: Self = Self {
        incompressible: IncompressiblePolicy::Refuse,
        huge_above: 3904,
        mem_limit: 0,
        empty_reserve: 4 << 20,
        compact_above_percent: 20,
        relax: core::hint::spin_loop,
    };
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Working memory of one storing thread: about 21 KiB, in the caller's memory.
pub struct Scratch {
    table: lz4::Table,
    output: [u8; lz4::OUTPUT_MAX],
}

impl Scratch {
    /// Fresh working memory.
    pub const fn new() -> Self {
        Self { table: lz4::Table::new(), output: [0; lz4::OUTPUT_MAX] }
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scratch")
    }
}

/// The outcome of storing a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Stored {
    /// The page is all zeroes and nothing is stored. The caller calls [`Zram::forget_same_filled`]
    /// when the page is dropped.
    Zero,
    /// The page is one repeated word and nothing is stored. The caller calls
    /// [`Zram::forget_same_filled`] when the page is dropped.
    SameFilled {
        /// The word.
        pattern: u64,
    },
    /// The page is stored as an object.
    Object {
        /// The object's name.
        handle: Handle,
        /// The object's length.
        len: StoredLen,
        /// The codec that expands the object: [`Codec::BaseDelta`] or [`Codec::Lz4`].
        codec: Codec,
        /// Over the object's bytes; the caller keeps it.
        checksum: Checksum,
    },
    /// The page did not shrink, the policy is to refuse, and nothing is stored.
    Incompressible,
}

/// The compressed store. About 21 KiB; all of its state lies in the caller's memory or in mappings
/// of `M`.
pub struct Zram<M> {
    memory: M,
    options: StoreOptions,
    directory: Directory,
    pool: Pool,
    bins: [Bin; CLASSES],
    same_pages: AtomicU64,
    huge_pages: AtomicU64,
    huge_pages_since: AtomicU64,
    pages_compacted: AtomicU64,
}

impl<M: PageMemory> Zram<M> {
    /// An empty store. It maps nothing until the first page.
    pub const fn new(memory: M, options: StoreOptions) -> Self {
        Self {
            memory,
            options,
            directory: Directory::new(),
            pool: Pool::new(),
            bins: [const { Bin::new() }; CLASSES],
            same_pages: AtomicU64::new(0),
            huge_pages: AtomicU64::new(0),
            huge_pages_since: AtomicU64::new(0),
            pages_compacted: AtomicU64::new(0),
        }
    }

    /// The caller's memory.
    pub const fn memory(&self) -> &M {
        &self.memory
    }

    /// Stores one page for `owner`. Any number of threads may store at a time, each with its own
    /// scratch.
    ///
    /// Cost: 6.8 µs at 2:1, of which compression takes 6.6 (0.4 µs for a page of numbers, 1.1 for
    /// an incompressible one, 0.1 for a filled one). The class's lock is held for list work only.
    /// Every 2 MiB of growth maps a chunk.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoMemory`] after the chunk kept ahead is used up,
    /// [`StoreError::LimitReached`].
    #[inline]
    pub fn store(&self, scratch: &mut Scratch, page: &Page, owner: Owner) -> Result<Stored, StoreError> {
        self.store_with(scratch, page, owner, self.options.incompressible)
    }

    /// Stores a page as [`store`](Self::store) does, with the policy for a page that does not
    /// shrink chosen for this call: a caller whose next tier is full keeps a page that it would
    /// otherwise refuse.
    ///
    /// # Errors
    ///
    /// As [`store`](Self::store).
    #[inline]
    pub fn store_with(
        &self,
        scratch: &mut Scratch,
        page: &Page,
        owner: Owner,
        incompressible: IncompressiblePolicy,
    ) -> Result<Stored, StoreError> {
        if let Some(pattern) = same_filled(page) {
            self.same_pages.fetch_add(1, Ordering::Relaxed);
            return Ok(if pattern == 0 { Stored::Zero } else { Stored::SameFilled { pattern } });
        }
        let limit = usize::from(self.options.huge_above).min(PAGE_SIZE - 1);
        let Scratch { table, output } = scratch;
        let (compressed, codec) = match base_delta::compress(page, output).filter(|&len| len <= limit) {
            Some(len) => (Some(len), Codec::BaseDelta),
            None => (lz4::compress(page, output, table, limit), Codec::Lz4),
        };
        let compressed = compressed.and_then(|len| Some((output.get(..len)?, StoredLen::new(len)?)));
        let (bytes, len) = match compressed {
            Some(found) => found,
            None => {
                self.huge_pages_since.fetch_add(1, Ordering::Relaxed);
                match incompressible {
                    IncompressiblePolicy::Refuse => return Ok(Stored::Incompressible),
                    IncompressiblePolicy::Keep => (&page[..], StoredLen::UNCOMPRESSED),
                }
            }
        };
        let (handle, checksum) = self.put(bytes, len, owner)?;
        if len == StoredLen::UNCOMPRESSED {
            self.huge_pages.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Stored::Object { handle, len, codec, checksum })
    }

    /// Makes an object of these `len` bytes.
    fn put(&self, bytes: &[u8], len: StoredLen, owner: Owner) -> Result<(Handle, Checksum), StoreError> {
        debug_assert_eq!(bytes.len(), len.bytes());
        let slot = self.allocate(ClassId::for_len(len.bytes()), len)?;
        // SAFETY: the slot was just allocated, is at least a header and `len` bytes long, and no
        // other thread writes its payload until it is freed. No thread reads it before the header
        // says that it is live.
        unsafe { slot.payload().copy_from_nonoverlapping(NonNull::from(bytes).cast(), len.bytes()) };
        let checksum = Checksum::of(bytes);
        // Release: a thread that sees the live header sees the bytes.
        slot.header().store(Header::Live { owner, len }.pack(), Ordering::Release);
        Ok((slot.handle, checksum))
    }

    /// Loads a page into `out` and verifies it. Takes no lock. Cost: 1.6 µs at 2:1, 6 µs for
    /// [`Codec::Zstd`]. `decoder` belongs to the calling thread and is used for that codec alone.
    ///
    /// # Errors
    ///
    /// [`LoadError`], never a wrong page.
    ///
    /// # Safety
    ///
    /// `handle` and `len` came from this store, were not freed, and during the call are neither
    /// freed nor moved: the caller holds the LOCK bit of the location from which it read them.
    #[inline]
    pub unsafe fn load(
        &self,
        handle: Handle,
        len: StoredLen,
        codec: Codec,
        checksum: Checksum,
        decoder: &mut zstd::Decoder,
        out: &mut Page,
    ) -> Result<(), LoadError> {
        let slot = self.slot(handle, len).ok_or(LoadError::NotAnObject)?;
        match Header::unpack(slot.header().load(Ordering::Acquire)) {
            Some(Header::Live { len: stored, .. }) if stored == len => {}
            _ => return Err(LoadError::NotAnObject),
        }
        // SAFETY: `slot` checked that `len` bytes lie inside the span. The object is live, so
        // `store` (or `compact`) wrote them before the header that was just read, and by the
        // caller's contract they are not written again while this reference exists.
        let bytes = unsafe { slice::from_raw_parts(slot.payload().as_ptr(), len.bytes()) };
        let found = Checksum::of(bytes);
        if found != checksum {
            return Err(LoadError::Corrupt { expected: checksum, found });
        }
        if let Ok(whole) = <&Page>::try_from(bytes) {
            *out = *whole;
            return Ok(());
        }
        match codec {
            Codec::Lz4 | Codec::Lz4Settled => {
                lz4::decompress(bytes, out).map_err(|lz4::Malformed| LoadError::Malformed)
            }
            Codec::BaseDelta => {
                base_delta::decompress(bytes, out).map_err(|base_delta::Malformed| LoadError::Malformed)
            }
            Codec::Zstd => decoder.decompress(bytes, out).map_err(|zstd::Malformed| LoadError::Malformed),
        }
    }

    /// Frees an object. Needs no memory. Cost: 0.25 µs when the object is not in the CPU's caches,
    /// including the return of empty memory: above the reserve a free occasionally makes up to two
    /// `madvise` calls.
    ///
    /// # Errors
    ///
    /// [`FreeError`] when the handle names no such object (best effort: a slot that was meanwhile
    /// reused by an object of the same length is not detected).
    ///
    /// # Safety
    ///
    /// `handle` and `len` came from this store and were not freed, and no thread loads or moves the
    /// object: the caller holds the LOCK bit of the location from which it read them, or has taken
    /// them out of the table under that bit.
    #[inline]
    pub unsafe fn free(&self, handle: Handle, len: StoredLen) -> Result<(), FreeError> {
        let (span, offset) = SpanId::of(handle);
        let class = self
            .directory
            .span(span)
            .and_then(|desc| ClassId::from_raw(desc.class_raw()))
            .ok_or(FreeError::NotAnObject)?;
        let released = {
            let bin = self.bin(class);
            let _guard = bin.lock(self.options.relax);
            bin.release(&self.directory, class, span, offset, len)?
        };
        if len == StoredLen::UNCOMPRESSED {
            self.huge_pages.fetch_sub(1, Ordering::Relaxed);
        }
        self.settle(released);
        Ok(())
    }

    /// Tells the store that a page it reported as [`Stored::Zero`] or [`Stored::SameFilled`] is
    /// gone; the figure `same_pages` goes down.
    #[inline]
    pub fn forget_same_filled(&self) {
        self.same_pages.fetch_sub(1, Ordering::Relaxed);
    }

    /// Gives the memory of all empty spans back to the system, in runs of neighbours; returns the
    /// bytes.
    pub fn trim(&self) -> u64 {
        self.pool.trim(&self.directory, &self.memory, self.options.relax)
    }

    #[inline]
    fn bin(&self, class: ClassId) -> &Bin {
        &self.bins[class.index()]
    }

    fn used_pages_limit(&self) -> u64 {
        match self.options.mem_limit {
            0 => u64::MAX,
            bytes => bytes / PAGE_SIZE as u64,
        }
    }

    fn allocate(&self, class: ClassId, len: StoredLen) -> Result<Slot, StoreError> {
        let mut fresh = None;
        let slot = loop {
            match self.take(class, len, &mut fresh) {
                Ok(Some(slot)) => break Ok(slot),
                Ok(None) => {}
                Err(error) => break Err(error),
            }
            // A span that is new to the class needs at least its first pages.
            if self.pool.counts().0 == 0 && self.pool.used_pages() >= self.used_pages_limit() {
                break Err(StoreError::LimitReached);
            }
            match self.pool.get(&self.directory, &self.memory, self.options.relax) {
                Ok(span) => {
                    self.prefault(class, span);
                    fresh = Some(span);
                }
                Err(pool::NoSpan) => break Err(StoreError::NoMemory),
            }
        };
        // Another thread freed a slot while the pool was asked. An empty span must not stay with
        // the class.
        if let Some(span) = fresh {
            self.settle(Released::SpanEmpty(span));
        }
        slot
    }

    /// Lets a span that the class is about to write become resident at once. This is worth it only
    /// for a class that has so many spans that the new one will soon be full, and whose unused part
    /// is small beside the used one. The span is in the caller's hands.
    fn prefault(&self, class: ClassId, span: SpanId) {
        let (desc, start) = (self.directory.span(span), self.directory.base(span));
        let (Some(desc), Some(start)) = (desc, start) else { return };
        if desc.touched_pages() == 0
            && self.bin(class).counts().spans >= PREFAULT_FROM
            && self.memory.will_write(start, SPAN_BYTES) == Prefault::Done
        {
            self.pool.note_resident(desc);
        }
    }

    /// Takes a slot of a span that the class has, or else of `fresh`, which then belongs to the
    /// class.
    fn take(
        &self,
        class: ClassId,
        len: StoredLen,
        fresh: &mut Option<SpanId>,
    ) -> Result<Option<Slot>, StoreError> {
        let (bin, limit) = (self.bin(class), self.used_pages_limit());
        let _guard = bin.lock(self.options.relax);
        if let Some(slot) = bin.take(&self.directory, &self.pool, class, len, limit)? {
            return Ok(Some(slot));
        }
        let Some(span) = fresh.take() else { return Ok(None) };
        bin.adopt(&self.directory, class, span);
        let taken = bin.take(&self.directory, &self.pool, class, len, limit);
        if !matches!(taken, Ok(Some(_))) {
            bin.expel(&self.directory, span);
            *fresh = Some(span);
        }
        taken
    }

    /// Hands a span that has become empty to the pool.
    fn settle(&self, released: Released) {
        if let Released::SpanEmpty(span) = released {
            let reserve =
                (self.options.empty_reserve / SPAN_BYTES as u64).min(u64::from(u32::MAX / 2)) as u32;
            self.pool.put(&self.directory, &self.memory, self.options.relax, span, reserve);
        }
    }

    /// The slot that a handle names, if `len` bytes fit behind it in its span.
    #[inline]
    fn slot(&self, handle: Handle, len: StoredLen) -> Option<Slot> {
        let (span, offset) = SpanId::of(handle);
        if offset + geometry::HEADER_BYTES + len.bytes() > SPAN_BYTES {
            return None;
        }
        let base = self.directory.base(span)?;
        // SAFETY: `offset` is below SPAN_BYTES, checked above, so the address stays inside the
        // span.
        Some(Slot { handle, start: unsafe { base.add(offset) } })
    }
}

impl<M> fmt::Debug for Zram<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Zram").field("options", &self.options).finish_non_exhaustive()
    }
}
