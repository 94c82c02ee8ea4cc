//! The zstd format for one page: slower than LZ4 and much smaller, for idle pages.
//!
//! zstd 1.5.7 (zstd-sys 2.1) at level 3, the kernel's, beside [`lz4`](crate::lz4): ns of CPU time
//! per page, the best of 10 rounds for each 50 pages, on an EPYC. The first three rows are pages of
//! shared libraries, programs and /usr/share: those that LZ4 shrinks to a half and to a third, and
//! those that it shrinks at all ("any"). "heap" is the memory of a CPython with some hundred
//! thousand objects.
//!
//! | pages | LZ4 in | out | ratio | zstd 1 in | out | ratio | zstd 3 in | out | ratio |
//! |---|---|---|---|---|---|---|---|---|---|
//! | 2:1 | 5930 | 1990 | 1.96 | 14500 | 5730 | 2.78 | 17800 | 5990 | 2.84 |
//! | 3:1 | 3880 | 2200 | 2.93 | 11900 | 4930 | 4.72 | 13100 | 4670 | 4.78 |
//! | any | 5340 | 2230 | 1.82 | 14800 | 5690 | 2.43 | 17900 | 6120 | 2.50 |
//! | heap | 4020 | 1400 | 2.83 | 12100 | 4990 | 4.85 | 12400 | 4370 | 4.98 |
//! | incompressible | 770 | 140 | 1.00 | 6720 | 2190 | 1.07 | 9120 | 2390 | 1.07 |
//!
//! Levels 4 to 9 gain 2 to 6 % more for 1.4 to 8 times the compression time. Hash and chain tables
//! of 2^11 entries, instead of the 2^13 and 2^12 that the level takes for 4 KiB, cost 0.2 % of the
//! ratio and save 33 KB. Frames are stored without zstd's magic number (4 bytes) and without its
//! checksum, because the store has one of its own.
//!
//! The module wraps the C library, because no encoder of this quality exists in Rust. The library
//! runs in its *static* contexts, whose memory is the caller's: it allocates nothing, takes no
//! lock, and calls only `memcpy`, `memmove` and `memset` of libc. The library's code for contexts
//! of its own (`malloc`) is never reached from these. Making a context asks the processor for its
//! features, which takes 7 µs in a virtual machine, so [`Encoder`] and [`Decoder`] keep theirs.

use core::ffi::c_void;
use zstd_sys::{
    ZSTD_CCtx, ZSTD_CCtx_setParameter, ZSTD_DCtx, ZSTD_DCtx_setParameter, ZSTD_cParameter, ZSTD_compress2,
    ZSTD_dParameter, ZSTD_decompressDCtx, ZSTD_format_e, ZSTD_initStaticCCtx, ZSTD_initStaticDCtx,
    ZSTD_isError,
};

use crate::page::{PAGE_SIZE, Page};

/// Compression level, in zstd's numbers.
const LEVEL: i32 = 3;
/// Entries of the tables in which matches are found, as a power of two.
const TABLE_LOG: i32 = 11;
/// The library needs 57 500 bytes for a page at this level, and 95 976 to expand any frame.
const ENCODER_BYTES: usize = 60 << 10;
const DECODER_BYTES: usize = 96 << 10;

/// Working memory of one compressing thread, 60 KiB. All-zero memory is a valid value.
#[repr(C, align(64))]
pub struct Encoder {
    memory: Memory<ENCODER_BYTES>,
    /// The last compressed page.
    output: [u8; PAGE_SIZE],
}

/// Working memory of one expanding thread, 96 KiB, of which pages use about a third. All-zero
/// memory is a valid value.
#[repr(C, align(64))]
pub struct Decoder {
    memory: Memory<DECODER_BYTES>,
}

/// The memory of a context. A context holds addresses of its own, so it is valid only where it was
/// made; after a move another is made. A forked child's copy, at the same address, stays valid.
#[repr(C, align(64))]
struct Memory<const BYTES: usize> {
    bytes: [u8; BYTES],
    /// The address at which the context was made; 0: there is none.
    made_at: usize,
}

impl<const BYTES: usize> Memory<BYTES> {
    const fn new() -> Self {
        Self { bytes: [0; BYTES], made_at: 0 }
    }

    /// The context in this memory, made by `make` if there is none. `None`: it cannot be made.
    fn context<C>(&mut self, make: impl FnOnce(*mut c_void) -> Option<*mut C>) -> Option<*mut C> {
        let start = self.bytes.as_mut_ptr();
        if self.made_at != start.addr() {
            let made = make(start.cast())?;
            debug_assert_eq!(made.addr(), start.addr(), "a context stands at the start of its memory");
            self.made_at = start.addr();
        }
        Some(start.cast())
    }
}

impl Encoder {
    /// An encoder without a context: the first page makes it.
    pub const fn new() -> Self {
        Self { memory: Memory::new(), output: [0; PAGE_SIZE] }
    }

    fn context(&mut self) -> Option<*mut ZSTD_CCtx> {
        self.memory.context(|start| {
            // SAFETY: the memory has that many bytes, is 64-aligned, and belongs to the context as
            // long as that is used.
            let context = unsafe { ZSTD_initStaticCCtx(start, ENCODER_BYTES) };
            let magicless = ZSTD_format_e::ZSTD_f_zstd1_magicless as i32;
            let parameters = [
                (ZSTD_cParameter::ZSTD_c_compressionLevel, LEVEL),
                (ZSTD_cParameter::ZSTD_c_hashLog, TABLE_LOG),
                (ZSTD_cParameter::ZSTD_c_chainLog, TABLE_LOG),
                // The name is `ZSTD_c_format`.
                (ZSTD_cParameter::ZSTD_c_experimentalParam2, magicless),
            ];
            // SAFETY: `context` was just made. Whether it is one is tested before this is called.
            let is_set = |(name, value)| is_fine(unsafe { ZSTD_CCtx_setParameter(context, name, value) });
            (!context.is_null() && parameters.into_iter().all(is_set)).then_some(context)
        })
    }

    /// Compresses a page; `None` when that takes more than `limit` bytes (of at most a page). Cost:
    /// about 18 µs at 2:1.
    pub fn compress(&mut self, page: &Page, limit: usize) -> Option<&[u8]> {
        let context = self.context()?;
        let capacity = limit.min(PAGE_SIZE);
        // SAFETY: the context is valid at this address and used by nobody else. Both buffers have
        // the lengths given and do not overlap.
        let len = unsafe {
            ZSTD_compress2(
                context,
                self.output.as_mut_ptr().cast(),
                capacity,
                page.as_ptr().cast(),
                PAGE_SIZE,
            )
        };
        if is_fine(len) { self.output.get(..len) } else { None }
    }
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

/// The bytes are no zstd frame of exactly one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl Decoder {
    /// A decoder without a context: the first frame makes it.
    pub const fn new() -> Self {
        Self { memory: Memory::new() }
    }

    fn context(&mut self) -> Option<*mut ZSTD_DCtx> {
        self.memory.context(|start| {
            // SAFETY: the memory has that many bytes, is 64-aligned, and belongs to the context as
            // long as that is used.
            let context = unsafe { ZSTD_initStaticDCtx(start, DECODER_BYTES) };
            let magicless = ZSTD_format_e::ZSTD_f_zstd1_magicless as i32;
            // The name is `ZSTD_d_format`.
            let name = ZSTD_dParameter::ZSTD_d_experimentalParam1;
            // SAFETY: `context` was just made.
            let is_set = || is_fine(unsafe { ZSTD_DCtx_setParameter(context, name, magicless) });
            (!context.is_null() && is_set()).then_some(context)
        })
    }

    /// Expands a frame into a page. Memory-safe on any input. Cost: about 6 µs at 2:1.
    ///
    /// # Errors
    ///
    /// [`Malformed`] when the input is not the frame of one whole page; `page` then holds arbitrary
    /// bytes.
    pub fn decompress(&mut self, input: &[u8], page: &mut Page) -> Result<(), Malformed> {
        let context = self.context().ok_or(Malformed)?;
        // SAFETY: the context is valid at this address and used by nobody else. Both buffers have
        // the lengths given and do not overlap.
        let len = unsafe {
            let (from, to) = (input.as_ptr().cast(), page.as_mut_ptr().cast());
            ZSTD_decompressDCtx(context, to, PAGE_SIZE, from, input.len())
        };
        if len == PAGE_SIZE { Ok(()) } else { Err(Malformed) }
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether a result of the library is not an error.
fn is_fine(result: usize) -> bool {
    // SAFETY: the function takes a plain number.
    unsafe { ZSTD_isError(result) == 0 }
}
