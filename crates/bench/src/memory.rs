//! Plain anonymous mappings for the programs, and warming up the machine's free memory.

use std::ops::{Deref, DerefMut};

/// Bytes that are touched between two questions whether to go on.
const WARMED_AT_ONCE: usize = 64 << 20;

/// A private anonymous mapping, page-aligned, zero at first, unmapped on drop.
#[derive(Debug)]
pub struct Mapping {
    start: *mut u8,
    length: usize,
}

// SAFETY: the mapping owns its memory, as a Box<[u8]> does.
unsafe impl Send for Mapping {}
// SAFETY: shared references only read.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `length` bytes without touching them.
    ///
    /// # Panics
    /// The kernel refuses.
    pub fn new(length: usize) -> Self {
        Self::try_new(length)
            .unwrap_or_else(|| panic!("mmap of {length} bytes: {}", std::io::Error::last_os_error()))
    }

    fn try_new(length: usize) -> Option<Self> {
        // SAFETY: this is a new mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        (start != libc::MAP_FAILED).then(|| Mapping { start: start.cast(), length })
    }

    /// Gives the kernel advice about the mapping.
    ///
    /// # Panics
    /// The kernel refuses.
    pub fn advise(&self, advice: i32) {
        // SAFETY: the mapping is ours; the advices used (HUGEPAGE, NOHUGEPAGE) do not change its
        // content.
        let result = unsafe { libc::madvise(self.start.cast(), self.length, advice) };
        assert_eq!(result, 0, "madvise: {}", std::io::Error::last_os_error());
    }
}

/// Touches `bytes` of the machine's free memory, in huge pages where possible, and gives them back,
/// because the kernel hands out first what was used last. In a virtual machine, memory that the
/// host has not backed yet, or has taken back, costs several times as much as other memory, and the
/// first engine to run would pay for it.
///
/// Warming ends before the machine has less free memory than twice the bytes left to touch, and
/// when `ends` returns true; memory that cannot be mapped or touched is left out. Cost: 0.1 to 1 s
/// per GiB.
pub fn warm(bytes: usize, ends: impl Fn() -> bool) {
    let mut touched = Vec::new();
    let mut left = bytes;
    while left > 0 && !ends() && left as u64 <= free_bytes() / 2 {
        let Some(mapping) = Mapping::try_new(left.min(WARMED_AT_ONCE)) else { return };
        for advice in [libc::MADV_HUGEPAGE, libc::MADV_POPULATE_WRITE] {
            // SAFETY: the mapping is ours and its content is not needed; a refused advice changes
            // nothing.
            unsafe { libc::madvise(mapping.start.cast(), mapping.length, advice) };
        }
        left -= mapping.length;
        touched.push(mapping);
    }
}

/// Free memory of the machine.
fn free_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    (info.freeram as u64).saturating_mul(u64::from(info.mem_unit))
}

impl Deref for Mapping {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is mapped, initialised by the kernel and owned.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}

impl DerefMut for Mapping {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the memory is mapped, initialised by the kernel, owned and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.length) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and no longer borrowed.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}

/// Parses `512M`, `2G`, `64K` or bytes.
///
/// # Errors
/// The text is no size.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M') => (&text[..text.len() - 1], 1 << 20),
        Some(b'G') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<u64>().map(|n| n * unit).map_err(|_| format!("not a size: {text}"))
}
