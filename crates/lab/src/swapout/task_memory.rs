//! Real anonymous memory of a task, which comes and goes in pieces of a folio.

use crate::ram_device::PAGE;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use serde::Serialize;
use std::io;
use std::ptr::NonNull;

/// Bytes of a huge page.
const HUGE: usize = 2 << 20;
/// Ranges that one call takes (IOV_MAX).
const RANGES_MAX: usize = 1024;

/// Whether the kernel may use huge pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HugePages {
    /// No, also where they are the default.
    Never,
    /// Yes, unless the system forbids them to all.
    Asked,
}

/// An anonymous mapping that begins at a border of 2 MiB. Dropped: unmapped.
#[derive(Debug)]
pub struct TaskMemory {
    mapping: NonNull<u8>,
    mapped: usize,
    start: NonNull<u8>,
    pages: u32,
}

// SAFETY: owns plain memory.
unsafe impl Send for TaskMemory {}

impl TaskMemory {
    /// Of `pages` pages, none of which is there yet.
    ///
    /// # Errors
    /// What mmap(2) or madvise(2) say.
    pub fn map(pages: u32, huge_pages: HugePages) -> io::Result<TaskMemory> {
        let bytes = pages as usize * PAGE;
        let mapped = bytes + HUGE;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping wherever the kernel likes.
        let mapping = unsafe { mmap_anonymous(std::ptr::null_mut(), mapped, protection, flags) }?;
        let mapping = NonNull::new(mapping.cast::<u8>()).ok_or(Errno::NOMEM)?;
        // SAFETY: at most 2 MiB, which the mapping is longer by than the memory.
        let start = unsafe { mapping.add(mapping.align_offset(HUGE)) };
        let memory = TaskMemory { mapping, mapped, start, pages };
        let advice = match huge_pages {
            HugePages::Never => Advice::LinuxNoHugepage,
            HugePages::Asked => Advice::LinuxHugepage,
        };
        // SAFETY: our own mapping; contents do not change.
        match unsafe { madvise(start.as_ptr().cast(), bytes, advice) } {
            // A kernel without huge pages: there is nothing to ask for.
            Ok(()) | Err(Errno::INVAL) => Ok(memory),
            Err(error) => Err(error.into()),
        }
    }

    /// Start of a page.
    ///
    /// # Panics
    /// Behind the last page.
    pub fn page(&self, page: u32) -> NonNull<u8> {
        assert!(page < self.pages, "page {page} of {}", self.pages);
        // SAFETY: inside the mapping, as was just checked.
        unsafe { self.start.add(page as usize * PAGE) }
    }

    /// Has the kernel provide `count` pages from `first` on, all by one call, as a fault provides a folio. Kernels before 5.14: a fault each.
    ///
    /// # Errors
    /// What madvise(2) says: above all that there is no memory.
    ///
    /// # Panics
    /// Behind the last page.
    pub fn populate(&mut self, first: u32, count: u32) -> io::Result<()> {
        let start = self.page(first);
        assert!(first + count <= self.pages, "pages {first} and {count} of {}", self.pages);
        // SAFETY: our own mapping; contents do not change.
        match unsafe { madvise(start.as_ptr().cast(), count as usize * PAGE, Advice::LinuxPopulateWrite) } {
            Ok(()) => Ok(()),
            Err(Errno::INVAL) => {
                for page in first..first + count {
                    let word = self.page(page).cast::<u64>();
                    // SAFETY: inside the mapping, aligned, and nobody else has it. What is there stays.
                    unsafe { word.write_volatile(word.read_volatile()) }
                }
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The words of `count` pages from `first` on.
    ///
    /// # Panics
    /// Behind the last page.
    pub fn words(&mut self, first: u32, count: u32) -> &mut [u64] {
        let start = self.page(first).cast::<u64>();
        assert!(first + count <= self.pages, "pages {first} and {count} of {}", self.pages);
        // SAFETY: inside the mapping, aligned, any bytes are words, and the borrow of `self` keeps others away.
        unsafe { NonNull::slice_from_raw_parts(start, count as usize * (PAGE / 8)).as_mut() }
    }
}

impl Drop for TaskMemory {
    fn drop(&mut self) {
        // SAFETY: our own mapping, to which no reference is left. If the kernel refuses it stays, which harms nobody.
        let _ = unsafe { munmap(self.mapping.as_ptr().cast(), self.mapped) };
    }
}

/// Bytes of this process that are in huge pages of anonymous memory now; 0 where the kernel does not say. Cost: a walk over all mappings.
pub fn huge_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// How memory is taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnmapBy {
    /// All ranges of a batch by one process_madvise(2), which invalidates translations once: as reclaim in the kernel does.
    OneCall,
    /// Each range by a madvise(2) of its own: kernels before 6.13.
    CallPerRange,
}

/// Takes memory away from tasks: its content is gone, and it comes anew when it is touched.
#[derive(Debug)]
pub struct Unmapper {
    /// This process, if it may be advised by one call.
    process: Option<OwnedFd>,
    ranges: Vec<libc::iovec>,
}

// SAFETY: addresses, which are used by `flush` only, under the promise given to `add`.
unsafe impl Send for Unmapper {}

impl Unmapper {
    /// Tries on a page of its own which way the kernel offers.
    ///
    /// # Errors
    /// No page can be mapped.
    pub fn new() -> io::Result<Unmapper> {
        let mut trial = TaskMemory::map(1, HugePages::Never)?;
        trial.populate(0, 1)?;
        let process = pidfd_open(getpid(), PidfdFlags::empty()).ok();
        let mut unmapper = Unmapper { process, ranges: Vec::with_capacity(RANGES_MAX) };
        // SAFETY: nothing is in that page.
        unsafe { unmapper.add(trial.page(0), 1) };
        if !unmapper.flush_by_one_call() {
            unmapper.process = None;
        }
        unmapper.ranges.clear();
        Ok(unmapper)
    }

    /// How.
    pub fn by(&self) -> UnmapBy {
        if self.process.is_some() { UnmapBy::OneCall } else { UnmapBy::CallPerRange }
    }

    /// Notes `pages` pages for the next [`flush`](Self::flush).
    ///
    /// # Safety
    /// Until then they stay mapped, are private anonymous memory of this process, and nobody needs their content.
    pub unsafe fn add(&mut self, start: NonNull<u8>, pages: u32) {
        if self.ranges.len() == RANGES_MAX {
            self.flush();
        }
        let range = libc::iovec { iov_base: start.as_ptr().cast(), iov_len: pages as usize * PAGE };
        self.ranges.push(range);
    }

    /// Takes away what was noted. Cost: one call, or one for each range.
    ///
    /// # Panics
    /// If the kernel refuses to take private anonymous memory away.
    pub fn flush(&mut self) {
        if !self.ranges.is_empty() && !self.flush_by_one_call() {
            for range in &self.ranges {
                // SAFETY: as was promised to `add`.
                let taken = unsafe { madvise(range.iov_base, range.iov_len, Advice::LinuxDontNeed) };
                taken.expect("private anonymous memory can be taken away");
            }
        }
        self.ranges.clear();
    }

    /// Whether all ranges were taken away so.
    fn flush_by_one_call(&self) -> bool {
        let Some(process) = &self.process else { return false };
        let bytes: usize = self.ranges.iter().map(|range| range.iov_len).sum();
        // SAFETY: the vector is alive; for the memory that it names as was promised to `add`.
        let done = unsafe {
            libc::syscall(
                libc::SYS_process_madvise,
                process.as_raw_fd(),
                self.ranges.as_ptr(),
                self.ranges.len(),
                libc::MADV_DONTNEED,
                0,
            )
        };
        usize::try_from(done) == Ok(bytes)
    }
}

#[cfg(test)]
mod tests;
