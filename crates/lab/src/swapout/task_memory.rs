//! Real anonymous memory of a task, which comes and goes folio by folio.

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
/// The most ranges of one call (IOV_MAX).
const RANGES_MAX: usize = 1024;

/// Whether the kernel may use huge pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HugePages {
    /// They are forbidden, even where they are the default.
    Never,
    /// They are asked for, and given unless the system forbids them to all.
    Asked,
}

/// An anonymous mapping that begins at a multiple of 2 MiB, unmapped on drop.
#[derive(Debug)]
pub struct TaskMemory {
    mapping: NonNull<u8>,
    mapped: usize,
    start: NonNull<u8>,
    pages: u32,
}

// SAFETY: the type owns plain memory.
unsafe impl Send for TaskMemory {}

impl TaskMemory {
    /// Maps `pages` pages without touching them.
    ///
    /// # Errors
    /// The error of mmap(2) or madvise(2).
    pub fn map(pages: u32, huge_pages: HugePages) -> io::Result<TaskMemory> {
        let bytes = pages as usize * PAGE;
        let mapped = bytes + HUGE;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: this is a new mapping at an address of the kernel's choice.
        let mapping = unsafe { mmap_anonymous(std::ptr::null_mut(), mapped, protection, flags) }?;
        let mapping = NonNull::new(mapping.cast::<u8>()).ok_or(Errno::NOMEM)?;
        // SAFETY: the offset is at most 2 MiB, by which the mapping is longer than the memory.
        let start = unsafe { mapping.add(mapping.align_offset(HUGE)) };
        let memory = TaskMemory { mapping, mapped, start, pages };
        let advice = match huge_pages {
            HugePages::Never => Advice::LinuxNoHugepage,
            HugePages::Asked => Advice::LinuxHugepage,
        };
        // SAFETY: the mapping is ours, and its contents do not change.
        match unsafe { madvise(start.as_ptr().cast(), bytes, advice) } {
            // A kernel without huge pages has none to give.
            Ok(()) | Err(Errno::INVAL) => Ok(memory),
            Err(error) => Err(error.into()),
        }
    }

    /// Start of a page.
    ///
    /// # Panics
    /// The page lies behind the last one.
    pub fn page(&self, page: u32) -> NonNull<u8> {
        assert!(page < self.pages, "page {page} of {}", self.pages);
        // SAFETY: the page was just checked to lie inside the mapping.
        unsafe { self.start.add(page as usize * PAGE) }
    }

    /// Has the kernel provide `count` pages from `first` on by one call, as a fault provides a
    /// folio. Kernels before 5.14 take a fault for each page.
    ///
    /// # Errors
    /// The error of madvise(2), above all for want of memory.
    ///
    /// # Panics
    /// The range ends behind the last page.
    pub fn populate(&mut self, first: u32, count: u32) -> io::Result<()> {
        let start = self.page(first);
        assert!(first + count <= self.pages, "pages {first} and {count} of {}", self.pages);
        // SAFETY: the mapping is ours, and its contents do not change.
        match unsafe { madvise(start.as_ptr().cast(), count as usize * PAGE, Advice::LinuxPopulateWrite) } {
            Ok(()) => Ok(()),
            Err(Errno::INVAL) => {
                for page in first..first + count {
                    let word = self.page(page).cast::<u64>();
                    // SAFETY: the word lies inside the mapping, is aligned, and nobody else has it.
                    // Its value stays.
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
    /// The range ends behind the last page.
    pub fn words(&mut self, first: u32, count: u32) -> &mut [u64] {
        let start = self.page(first).cast::<u64>();
        assert!(first + count <= self.pages, "pages {first} and {count} of {}", self.pages);
        // SAFETY: the words lie inside the mapping and are aligned, any bytes are words, and the
        // borrow of `self` excludes other access.
        unsafe { NonNull::slice_from_raw_parts(start, count as usize * (PAGE / 8)).as_mut() }
    }
}

impl Drop for TaskMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference is left. If the kernel refuses, the mapping
        // stays, which is harmless.
        let _ = unsafe { munmap(self.mapping.as_ptr().cast(), self.mapped) };
    }
}

/// Bytes of this process in huge pages of anonymous memory; 0 where the kernel does not say. Cost:
/// a walk over all mappings.
pub fn huge_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// The way in which memory is taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnmapBy {
    /// By one process_madvise(2) for all ranges of a batch, which invalidates translations once, as
    /// reclaim in the kernel does.
    OneCall,
    /// By a madvise(2) for each range: kernels before 6.13.
    CallPerRange,
}

/// Whether one call took all noted memory away.
#[derive(PartialEq, Eq)]
enum OneCall {
    Done,
    /// The kernel does not offer it, or took only a part.
    Refused,
}

/// Takes memory away from tasks: the content is lost, and the memory comes anew when it is touched.
#[derive(Debug)]
pub struct Unmapper {
    /// This process, if one call can advise it.
    process: Option<OwnedFd>,
    ranges: Vec<libc::iovec>,
}

// SAFETY: the addresses are used by `flush` only, under the promise given to `add`.
unsafe impl Send for Unmapper {}

impl Unmapper {
    /// Finds out with a page of its own which way the kernel offers.
    ///
    /// # Errors
    /// No page can be mapped.
    pub fn new() -> io::Result<Unmapper> {
        let mut trial = TaskMemory::map(1, HugePages::Never)?;
        trial.populate(0, 1)?;
        let process = pidfd_open(getpid(), PidfdFlags::empty()).ok();
        let mut unmapper = Unmapper { process, ranges: Vec::with_capacity(RANGES_MAX) };
        // SAFETY: the page holds nothing.
        unsafe { unmapper.add(trial.page(0), 1) };
        if unmapper.flush_by_one_call() == OneCall::Refused {
            unmapper.process = None;
        }
        unmapper.ranges.clear();
        Ok(unmapper)
    }

    /// The way in use.
    pub fn by(&self) -> UnmapBy {
        if self.process.is_some() { UnmapBy::OneCall } else { UnmapBy::CallPerRange }
    }

    /// Notes `pages` pages for the next [`flush`](Self::flush).
    ///
    /// # Safety
    /// Until then the pages stay mapped, are private anonymous memory of this process, and their
    /// content is not needed.
    pub unsafe fn add(&mut self, start: NonNull<u8>, pages: u32) {
        if self.ranges.len() == RANGES_MAX {
            self.flush();
        }
        let range = libc::iovec { iov_base: start.as_ptr().cast(), iov_len: pages as usize * PAGE };
        self.ranges.push(range);
    }

    /// Takes the noted memory away. Cost: one call, or one for each range.
    ///
    /// # Panics
    /// The kernel refuses to take private anonymous memory away.
    pub fn flush(&mut self) {
        if !self.ranges.is_empty() && self.flush_by_one_call() == OneCall::Refused {
            for range in &self.ranges {
                // SAFETY: the caller of `add` has promised it.
                let taken = unsafe { madvise(range.iov_base, range.iov_len, Advice::LinuxDontNeed) };
                taken.expect("private anonymous memory can be taken away");
            }
        }
        self.ranges.clear();
    }

    fn flush_by_one_call(&self) -> OneCall {
        let Some(process) = &self.process else { return OneCall::Refused };
        let bytes: usize = self.ranges.iter().map(|range| range.iov_len).sum();
        // SAFETY: the vector is alive; the caller of `add` has promised the rest for the memory
        // that it names.
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
        if usize::try_from(done) == Ok(bytes) { OneCall::Done } else { OneCall::Refused }
    }
}

#[cfg(test)]
mod tests;
