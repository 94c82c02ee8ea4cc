//! The pagemap: which pages of a range are present, by PAGEMAP_SCAN (5 ns a page) and by the words
//! of `/proc/self/pagemap`. Source: the kernel's Documentation/admin-guide/mm/pagemap.rst.

use crate::kernel::{failing, sys};
use crate::units::{BLOCK, BLOCK_PAGES, PAGE};
use linux_raw_sys::general as raw;
use rustix::io::Errno;

/// Of a file, or shared memory.
const PAGE_IS_FILE: u64 = 1 << 2;

const PAGE_IS_PRESENT: u64 = 1 << 3;

/// In the kernel's own swap, or a mark of the kernel's such as a guard.
const PAGE_IS_SWAPPED: u64 = 1 << 4;

const PAGE_IS_PFNZERO: u64 = 1 << 5;

const PAGE_IS_HUGE: u64 = 1 << 6;

pub(super) const SCAN: u32 =
    (3 << 30) | ((size_of::<raw::pm_scan_arg>() as u32) << 16) | ((b'f' as u32) << 8) | 16;

/// Pages in a row that a scan found. The kernel's huge pages are regions by themselves.
pub type Region = raw::page_region;

/// The end of a scan, and the regions that it filled.
#[derive(Clone, Copy, Debug)]
pub struct Scan {
    /// Regions filled in.
    pub regions: usize,
    /// Address up to which the range has been looked at.
    pub end: usize,
}

/// An empty region, for buffers.
pub const EMPTY: Region = Region { start: 0, end: 0, categories: 0 };

/// Finds pages that are present in `start..end` and are not the shared zero page, by
/// `/proc/self/pagemap`.
///
/// # Errors
/// ENOTTY on Linux before 6.7.
pub fn present(pagemap: i32, start: usize, end: usize, regions: &mut [Region]) -> Result<Scan, Errno> {
    scan(pagemap, start, end, regions, Wanted::PRESENT)
}

/// Finds the pages of `start..end` that are the shared zero page: those that were read and never
/// written to.
///
/// # Errors
/// As [`present`].
pub fn zero_pages(pagemap: i32, start: usize, end: usize, regions: &mut [Region]) -> Result<Scan, Errno> {
    scan(pagemap, start, end, regions, Wanted::ZERO_PAGE)
}

/// The bytes of `start..end` that are present, and pages of a file or of shared memory. Cost: 5 ns
/// a page, and a system call for every 32 holes.
///
/// # Errors
/// As [`present`].
pub fn file_bytes(pagemap: i32, start: usize, end: usize) -> Result<u64, Errno> {
    let (mut regions, mut bytes, mut at) = ([EMPTY; 32], 0, start);
    while at < end {
        let found = scan(pagemap, at, end, &mut regions, Wanted::FILE)?;
        bytes += regions[..found.regions].iter().map(|region| region.end - region.start).sum::<u64>();
        // The kernel goes on; a scan that does not would never end.
        at = found.end.max(at + PAGE);
    }
    Ok(bytes)
}

/// The pages that a scan looks for, by the kernel's categories.
struct Wanted {
    inverted: u64,
    all_of: u64,
    any_of: u64,
}

impl Wanted {
    /// Present, and not the shared zero page.
    const PRESENT: Wanted = Wanted { inverted: PAGE_IS_PFNZERO, ..Wanted::ZERO_PAGE };
    /// The shared zero page.
    const ZERO_PAGE: Wanted = Wanted { inverted: 0, all_of: PAGE_IS_PRESENT | PAGE_IS_PFNZERO, any_of: 0 };
    /// Present, and of a file or of shared memory.
    const FILE: Wanted = Wanted { inverted: 0, all_of: PAGE_IS_PRESENT | PAGE_IS_FILE, any_of: 0 };
    /// A page, or a mark of the kernel's in its place.
    const ANYTHING: Wanted = Wanted { inverted: 0, all_of: 0, any_of: PAGE_IS_PRESENT | PAGE_IS_SWAPPED };
}

fn scan(
    pagemap: i32,
    start: usize,
    end: usize,
    regions: &mut [Region],
    wanted: Wanted,
) -> Result<Scan, Errno> {
    let mut argument = raw::pm_scan_arg {
        size: size_of::<raw::pm_scan_arg>() as u64,
        flags: 0,
        start: start as u64,
        end: end as u64,
        walk_end: 0,
        vec: regions.as_mut_ptr() as u64,
        vec_len: regions.len() as u64,
        max_pages: 0,
        category_inverted: wanted.inverted,
        category_mask: wanted.all_of,
        category_anyof_mask: wanted.any_of,
        return_mask: PAGE_IS_PRESENT | PAGE_IS_HUGE,
    };
    failing::with_one_of([Errno::NOMEM, Errno::INTR])?;
    // SAFETY: the argument is the one that PAGEMAP_SCAN demands; the vector is ours.
    let filled = unsafe { sys::ioctl(pagemap, SCAN, &raw mut argument) }?;
    Ok(Scan { regions: filled, end: argument.walk_end as usize })
}

/// The present state of consecutive pages in the kernel, bit by page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Present (in memory, or in the kernel's own swap).
    pub present: u16,
    /// Present, and in the kernel's own swap or on its way to another frame.
    pub swapped: u16,
    /// Present, and write-protected by userfaultfd.
    pub protected: u16,
    /// Present, and mapped by this process alone.
    pub exclusive: u16,
    /// Not present, and a guard (MADV_GUARD_INSTALL), as far as the kernel tells (Linux 6.15 on).
    pub guarded: u16,
}

/// Pages of one [`Now`].
const PAGES: usize = u16::BITS as usize;

/// Asks about up to 16 pages from `address` on, by `/proc/self/pagemap` (bits 63, 62, 58, 57
/// and 56 of each word).
///
/// # Errors
/// The descriptor's; the answer is then unknown.
pub fn now(pagemap: i32, address: usize, pages: usize) -> Result<Now, Errno> {
    let mut words = [[0; 8]; PAGES];
    let pages = pages.min(PAGES);
    read(pagemap, address, &mut words[..pages]).map(|read| Now::of(&words[..read]))
}

/// As [`now`], for as many pieces of 16 pages as `now` has elements, at most 32. Each piece costs a
/// fifth of a separate call.
///
/// # Errors
/// As [`now`].
pub fn pieces(pagemap: i32, address: usize, now: &mut [Now]) -> Result<(), Errno> {
    let mut words = [[0; 8]; BLOCK_PAGES];
    let words = &mut words[..(now.len() * PAGES).min(BLOCK_PAGES)];
    let read = read(pagemap, address, words)?;
    for (now, words) in now.iter_mut().zip(words[..read].chunks(PAGES)) {
        *now = Now::of(words);
    }
    Ok(())
}

fn read(pagemap: i32, address: usize, words: &mut [[u8; 8]]) -> Result<usize, Errno> {
    // SAFETY: the descriptor is in the pager threads' table and stays open.
    let descriptor = unsafe { rustix::fd::BorrowedFd::borrow_raw(pagemap) };
    let read = rustix::io::pread(descriptor, words.as_flattened_mut(), address as u64 / 4096 * 8)?;
    Ok(read / 8)
}

impl Now {
    fn of(words: &[[u8; 8]]) -> Self {
        let mut now = Now::default();
        for (page, word) in words.iter().enumerate() {
            let word = u64::from_le_bytes(*word);
            // The kernel calls a guard swapped too.
            let guarded = word >> 58 & 1 != 0;
            let present = word >> 62 != 0 && !guarded;
            now.guarded |= u16::from(guarded) << page;
            now.present |= u16::from(present) << page;
            now.swapped |= u16::from(present && word >> 62 & 1 != 0) << page;
            now.protected |= u16::from(present && word >> 57 & 1 != 0) << page;
            now.exclusive |= u16::from(present && word >> 56 & 1 != 0) << page;
        }
        now
    }
}

/// Whether one huge page of the kernel's is mapped at `address`, a multiple of 2 MiB.
pub fn is_huge(pagemap: i32, address: usize) -> bool {
    let mut regions = [EMPTY; 1];
    present(pagemap, address, address + BLOCK, &mut regions)
        .is_ok_and(|scan| scan.regions == 1 && is_huge_page(&regions[0]))
}

/// Whether a region that was found begins with a huge page.
pub fn is_huge_page(region: &Region) -> bool {
    let (start, end) = (region.start as usize, region.end as usize);
    region.categories & PAGE_IS_HUGE != 0 && start.is_multiple_of(BLOCK) && end - start >= BLOCK
}

/// Whether nothing at all is from `start` to `end`: no page, and no guard or other mark of the
/// kernel's.
pub fn is_empty(pagemap: i32, start: usize, end: usize) -> bool {
    let mut regions = [EMPTY; 1];
    scan(pagemap, start, end, &mut regions, Wanted::ANYTHING)
        .is_ok_and(|scan| scan.regions == 0 && scan.end == end)
}
