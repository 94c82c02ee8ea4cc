//! Pool of cluster frames: the reserve of swap tables. Tables are reserved up front, so that
//! eviction can never fail for memory (spec §6).
//!
//! A frame is `4096 + 512 * PAYLOAD` bytes; while a cluster has it, it is the cluster's *table*, or
//! its overflow array. The pool is an array of *sections* of up to 64 frames each, with one bit per
//! frame, and has no lock: clearing a frame's bit takes it, setting the bit gives it back. Frames
//! are taken from the lowest section first, so that idle frames gather.
//!
//! Invariant: the first 4096 bytes (slot words, or overflow counts) of a free frame are zero,
//! because a table leaves its cluster only when all its words are free. So only the payload ever
//! needs zeroing.

use crate::lock::SpinLock;
use crate::order::CLUSTER_SLOTS;
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use core::ptr::NonNull;

/// Bytes of slot words in a frame.
pub(crate) const WORDS_BYTES: usize = CLUSTER_SLOTS as usize * size_of::<u64>();
/// Frames in a section.
pub(crate) const SECTION_FRAMES: u32 = 64;
/// Alignment of a frame's first byte within the memory given to the pool.
const FRAME_ALIGN: usize = 64;

/// Frame number + 1; 0 means none.
pub(crate) type FrameNumber = u32;

/// The state in which the caller leaves idle frames that it was shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameContent {
    /// The memory reads as zero now, for example after `MADV_DONTNEED`, with the page fragments at
    /// both ends cleared by hand.
    Zeroed,
    /// The memory was left alone.
    Unchanged,
}

/// Why memory could not be added to the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddFramesError {
    /// Not even one frame fits.
    TooSmall,
    /// The chunk table ([`Config::frame_chunks_max`](crate::Config::frame_chunks_max)) is full.
    ChunkTableFull,
}

impl core::fmt::Display for AddFramesError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str(match self {
            AddFramesError::TooSmall => "memory too small for one cluster frame",
            AddFramesError::ChunkTableFull => "chunk table full",
        })
    }
}

impl core::error::Error for AddFramesError {}

/// Shared part of the pool. Zeroed memory is an empty pool.
#[repr(C)]
pub(crate) struct PoolHeader {
    add_lock: SpinLock,
    sections: AtomicU32,
    /// Section to look at first.
    first_candidate: AtomicU32,
    free: AtomicU32,
    total: AtomicU32,
}

/// Up to 64 contiguous frames.
#[repr(C)]
pub(crate) struct Section {
    base: AtomicPtr<u8>,
    /// One bit per frame that has no owner.
    free: AtomicU64,
    /// One bit per frame that is known to read as zero. A frame's owner alone changes its bit.
    zeroed: AtomicU64,
}

/// A frame just taken from the pool.
pub(crate) struct TakenFrame {
    pub(crate) number: FrameNumber,
    pub(crate) memory: NonNull<u8>,
    pub(crate) content: FrameContent,
}

/// Borrowed view of the pool.
#[derive(Clone, Copy)]
pub(crate) struct Pool<'a> {
    pub(crate) header: &'a PoolHeader,
    pub(crate) sections: &'a [Section],
    pub(crate) frame_bytes: usize,
}

const fn low_bits(count: u32) -> u64 {
    if count >= u64::BITS { u64::MAX } else { (1 << count) - 1 }
}

impl Pool<'_> {
    pub(crate) fn free(&self) -> u32 {
        self.header.free.load(Ordering::Relaxed)
    }

    pub(crate) fn total(&self) -> u32 {
        self.header.total.load(Ordering::Relaxed)
    }

    /// Adds the whole frames that fit into `bytes` of zeroed memory; returns their number.
    ///
    /// # Safety
    /// The memory is zero, valid for reads and writes for as long as the pool is used, and used by
    /// nobody else.
    pub(crate) unsafe fn add(&self, memory: NonNull<u8>, bytes: usize) -> Result<u32, AddFramesError> {
        let lead = memory.as_ptr().align_offset(FRAME_ALIGN).min(bytes);
        let frames = u32::try_from((bytes - lead) / self.frame_bytes).unwrap_or(u32::MAX);
        if frames == 0 {
            return Err(AddFramesError::TooSmall);
        }
        self.header.add_lock.lock::<crate::lock::SpinOnly>();
        let known = self.header.sections.load(Ordering::Relaxed);
        let wanted = frames.div_ceil(SECTION_FRAMES);
        if wanted as usize > self.sections.len() - known as usize {
            self.header.add_lock.unlock();
            return Err(AddFramesError::ChunkTableFull);
        }
        for number in 0..wanted {
            let first = number * SECTION_FRAMES;
            let section = &self.sections[(known + number) as usize];
            // SAFETY: `first < frames`, so the address lies inside the memory given by the caller.
            let base = unsafe { memory.as_ptr().add(lead + first as usize * self.frame_bytes) };
            let bits = low_bits(frames - first);
            section.base.store(base, Ordering::Relaxed);
            section.zeroed.store(bits, Ordering::Relaxed);
            section.free.store(bits, Ordering::Release);
        }
        self.header.total.fetch_add(frames, Ordering::Relaxed);
        self.header.free.fetch_add(frames, Ordering::Relaxed);
        self.header.sections.store(known + wanted, Ordering::Release);
        self.header.add_lock.unlock();
        Ok(frames)
    }

    /// Takes a frame, one known to be zero if its section has one. Cost: the first section with a
    /// free frame.
    pub(crate) fn take(&self) -> Option<TakenFrame> {
        let known = self.header.sections.load(Ordering::Acquire);
        let start = self.header.first_candidate.load(Ordering::Relaxed);
        for step in 0..known {
            let index = (start + step) % known;
            let section = &self.sections[index as usize];
            loop {
                let free = section.free.load(Ordering::Relaxed);
                if free == 0 {
                    break;
                }
                let clean = free & section.zeroed.load(Ordering::Relaxed);
                let bit = 1u64 << if clean != 0 { clean } else { free }.trailing_zeros();
                if section.free.fetch_and(!bit, Ordering::Acquire) & bit != 0 {
                    if step != 0 {
                        self.header.first_candidate.store(index, Ordering::Relaxed);
                    }
                    self.header.free.fetch_sub(1, Ordering::Relaxed);
                    return Some(self.taken(index, bit.trailing_zeros()));
                }
            }
        }
        None
    }

    fn taken(&self, index: u32, frame: u32) -> TakenFrame {
        let section = &self.sections[index as usize];
        let was_zero = section.zeroed.fetch_and(!(1 << frame), Ordering::Relaxed) >> frame & 1 != 0;
        TakenFrame {
            number: index * SECTION_FRAMES + frame + 1,
            memory: self.address(index, frame),
            content: if was_zero { FrameContent::Zeroed } else { FrameContent::Unchanged },
        }
    }

    fn address(&self, index: u32, frame: u32) -> NonNull<u8> {
        let base = self.sections[index as usize].base.load(Ordering::Relaxed);
        debug_assert!(!base.is_null());
        // SAFETY: the section's base is not null and `frame` is one of the frames behind it.
        unsafe { NonNull::new_unchecked(base.add(frame as usize * self.frame_bytes)) }
    }

    /// The memory of a frame that the caller owns.
    pub(crate) fn memory(&self, number: FrameNumber) -> NonNull<u8> {
        let number = number - 1;
        self.address(number / SECTION_FRAMES, number % SECTION_FRAMES)
    }

    /// Records that the payload of a taken frame is zero and stays so.
    pub(crate) fn remember_zeroed(&self, number: FrameNumber) {
        let (index, frame) = ((number - 1) / SECTION_FRAMES, (number - 1) % SECTION_FRAMES);
        self.sections[index as usize].zeroed.fetch_or(1 << frame, Ordering::Relaxed);
    }

    /// Gives a frame back. Its first 4096 bytes are zero again; `content` describes its payload.
    pub(crate) fn give_back(&self, number: FrameNumber, content: FrameContent) {
        let (index, frame) = ((number - 1) / SECTION_FRAMES, (number - 1) % SECTION_FRAMES);
        let section = &self.sections[index as usize];
        if content == FrameContent::Zeroed {
            section.zeroed.fetch_or(1 << frame, Ordering::Relaxed);
        }
        let before = section.free.fetch_or(1 << frame, Ordering::Release);
        debug_assert_eq!(before >> frame & 1, 0, "frame given back twice");
        self.header.free.fetch_add(1, Ordering::Relaxed);
        self.header.first_candidate.fetch_min(index, Ordering::Relaxed);
    }

    /// Shows runs of adjacent idle frames that are not known to be zero, at most `max_frames` in
    /// all. Each is locked out of use while it is shown.
    pub(crate) fn take_idle(
        &self,
        max_frames: u32,
        mut show: impl FnMut(NonNull<u8>, usize) -> FrameContent,
    ) -> u32 {
        let known = self.header.sections.load(Ordering::Acquire);
        let mut shown = 0;
        for index in 0..known {
            let section = &self.sections[index as usize];
            let mut idle = section.free.load(Ordering::Relaxed) & !section.zeroed.load(Ordering::Relaxed);
            while idle != 0 && shown < max_frames {
                let first = idle.trailing_zeros();
                let length = (idle >> first).trailing_ones().min(max_frames - shown);
                let run = low_bits(length) << first;
                idle &= !run;
                let got = section.free.fetch_and(!run, Ordering::Acquire) & run;
                if got != run {
                    // Another thread took part of the run first: leave the run to the next call.
                    section.free.fetch_or(got, Ordering::Release);
                    continue;
                }
                self.header.free.fetch_sub(length, Ordering::Relaxed);
                let memory = self.address(index, first);
                if show(memory, length as usize * self.frame_bytes) == FrameContent::Zeroed {
                    section.zeroed.fetch_or(run, Ordering::Relaxed);
                }
                section.free.fetch_or(run, Ordering::Release);
                self.header.free.fetch_add(length, Ordering::Relaxed);
                shown += length;
            }
        }
        shown
    }

    /// Whether the frame has no owner. For `validate`.
    pub(crate) fn is_free(&self, number: FrameNumber) -> bool {
        let number = number - 1;
        let section = &self.sections[(number / SECTION_FRAMES) as usize];
        section.free.load(Ordering::Relaxed) >> (number % SECTION_FRAMES) & 1 != 0
    }

    /// Free frames counted bit by bit. For `validate`.
    pub(crate) fn count_free(&self) -> u32 {
        let known = self.header.sections.load(Ordering::Acquire) as usize;
        self.sections[..known].iter().map(|section| section.free.load(Ordering::Relaxed).count_ones()).sum()
    }
}
