//! madvise, of which the kernel does not tell the pager; mmap, mprotect, brk and sbrk, of which the
//! pager would learn a moment too late.

use crate::libc;
use crate::next;
use crate::start::engine;
use core::ffi::{c_int, c_void};
use folioswap_pager::engine::Engine;
use folioswap_pager::engine::advices::Advice;
use folioswap_pager::engine::holds::Populate;
use folioswap_pager::kernel::sys;
use folioswap_pager::program::announce::{Filling, Intent, Unevictable};
use folioswap_pager::program::huge_advice::Advised;
use linux_raw_sys::errno::ENOMEM;
use linux_raw_sys::general as raw;

/// Of Linux 6.13 (`asm-generic/mman-common.h`).
const MADV_GUARD_INSTALL: u32 = 102;

/// madvise(2): memory that is to leave or to come back does so; the program's advice on huge pages
/// is recorded.
///
/// # Safety
/// As madvise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(start: *mut c_void, bytes: usize, advice: c_int) -> c_int {
    // SAFETY: by the caller's contract.
    match unsafe { advise(start, bytes, advice as u32) } {
        Ok(()) => 0,
        Err(errno) => libc::failed(errno),
    }
}

/// The same, for whoever has no errno.
///
/// # Errors
/// madvise(2)'s, by its number.
///
/// # Safety
/// As madvise.
pub(crate) unsafe fn advise(start: *mut c_void, bytes: usize, advice: u32) -> Result<(), i32> {
    let engine = engine();
    let ask = |advice: usize| {
        if let (Some(engine), Some(how)) = (engine, Populate::of_advice(advice as u32)) {
            let start = start as usize;
            return engine.populate(start, start.saturating_add(bytes), how).map(|()| 0);
        }
        // SAFETY: by the caller's contract.
        unsafe { sys::syscall(raw::__NR_madvise, [start as usize, bytes, advice, 0, 0, 0]) }
    };
    let pages_out = advice == raw::MADV_PAGEOUT && engine.is_some_and(Engine::follows_advice);
    // For MADV_COLD the kernel makes the same checks of whether memory may leave as for
    // MADV_PAGEOUT. Managed memory leaves before the kernel is asked to page out the rest (pages of
    // files).
    let result = ask(if pages_out { raw::MADV_COLD as usize } else { advice as usize });
    // With ENOMEM the ranges around a hole were advised all the same.
    let followed = result.as_ref().map_or_else(|errno| errno.raw_os_error() as u32 == ENOMEM, |_| true);
    if let Some(engine) = engine {
        let address = start as usize;
        match advice {
            raw::MADV_HUGEPAGE if result.is_ok() => {
                engine.advise_huge_pages(address, bytes, Advised::HugePages);
            }
            raw::MADV_NOHUGEPAGE if result.is_ok() => {
                engine.advise_huge_pages(address, bytes, Advised::NoHugePages);
            }
            raw::MADV_PAGEOUT if followed && pages_out => {
                engine.advise(Advice::PageOut, address, bytes);
                let _ = ask(raw::MADV_PAGEOUT as usize);
            }
            raw::MADV_COLD if followed => engine.advise(Advice::Cold, address, bytes),
            raw::MADV_WILLNEED if followed => engine.advise(Advice::WillNeed, address, bytes),
            // The kernel gives up what was there and tells nobody. It does tell of this, which
            // leaves the guards where they are.
            MADV_GUARD_INSTALL if result.is_ok() => _ = ask(raw::MADV_DONTNEED as usize),
            _ => {}
        }
    }
    result.map(drop).map_err(|errno| errno.raw_os_error())
}

/// mmap(2): large anonymous memory is announced before the program touches it. Where memory is
/// short the kernel does not fill private memory at once (MAP_POPULATE is no promise), and memory
/// that cannot be swapped out first waits until there is memory for it.
///
/// # Safety
/// As mmap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    start: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    descriptor: c_int,
    offset: i64,
) -> *mut c_void {
    let words = [start as usize, bytes, protection as usize, flags as usize, descriptor as usize];
    let [start, bytes, protection, flags, descriptor] = words;
    // SAFETY: by the caller's contract.
    match unsafe { map([start, bytes, protection, flags, descriptor, offset as usize]) } {
        Ok(address) => address as *mut c_void,
        Err(errno) => {
            libc::set_errno(errno);
            usize::MAX as *mut c_void
        }
    }
}

/// The same with the arguments of the system call, for whoever has no errno.
///
/// # Errors
/// mmap(2)'s, by its number.
///
/// # Safety
/// As mmap.
pub(crate) unsafe fn map(arguments: [usize; 6]) -> Result<usize, i32> {
    let [start, bytes, protection, flags, descriptor, offset] = arguments;
    let all = |wanted: u32| flags as u32 & wanted == wanted;
    // `all` does not serve here: MAP_SHARED_VALIDATE has the bits of both types.
    let is_type = |wanted: u32| flags as u32 & raw::MAP_TYPE == wanted;
    let (is_private, is_shared) = (is_type(raw::MAP_PRIVATE), is_type(raw::MAP_SHARED));
    let is_writable = protection as u32 & raw::PROT_WRITE != 0;
    let is_filled = (all(raw::MAP_POPULATE) && !all(raw::MAP_NONBLOCK)) || all(raw::MAP_LOCKED);
    let (mut flags_now, mut announcement) = (flags, None);
    if is_filled
        && all(raw::MAP_ANONYMOUS)
        && !all(raw::MAP_HUGETLB)
        && let Some(engine) = engine()
    {
        if is_shared && protection as u32 != raw::PROT_NONE {
            announcement = engine.make_room(bytes, Unevictable::Shared);
        } else if is_private && is_writable && all(raw::MAP_LOCKED) {
            // Locked memory counts as soon as it comes in, so it is announced only until then.
            drop(engine.make_room(bytes, Unevictable::Locked));
        } else if is_private && is_writable {
            match engine.filling(bytes) {
                Filling::AtOnce(announced) => announcement = announced,
                Filling::ByFaults => flags_now &= !(raw::MAP_POPULATE as usize),
            }
        }
    }
    let arguments = [start, bytes, protection, flags_now, descriptor, offset];
    // SAFETY: by the caller's contract.
    let result = unsafe { sys::syscall(raw::__NR_mmap, arguments) };
    drop(announcement);
    let address = result.map_err(|errno| errno.raw_os_error())?;
    if is_private
        && all(raw::MAP_ANONYMOUS)
        && is_writable
        && let Some(engine) = engine()
    {
        let sparse = all(raw::MAP_NORESERVE);
        engine.memory_was_mapped(bytes, if sparse { Intent::Sparse } else { Intent::Whole });
    }
    Ok(address)
}

/// mmap64(3): the same as mmap on this architecture.
///
/// # Safety
/// As mmap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    start: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    descriptor: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: by the caller's contract.
    unsafe { mmap(start, bytes, protection, flags, descriptor, offset) }
}

/// mprotect(2): memory that was reserved without access is announced like new memory.
///
/// # Safety
/// As mprotect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(start: *mut c_void, bytes: usize, protection: c_int) -> c_int {
    // SAFETY: by the caller's contract.
    match unsafe { protect(start as usize, bytes, protection as u32) } {
        Ok(()) => 0,
        Err(errno) => libc::failed(errno),
    }
}

/// The same, for whoever has no errno.
///
/// # Errors
/// mprotect(2)'s, by its number.
///
/// # Safety
/// As mprotect.
pub(crate) unsafe fn protect(start: usize, bytes: usize, protection: u32) -> Result<(), i32> {
    // SAFETY: by the caller's contract.
    unsafe { sys::syscall(raw::__NR_mprotect, [start, bytes, protection as usize, 0, 0, 0]) }
        .map_err(|errno| errno.raw_os_error())?;
    if protection & raw::PROT_WRITE != 0
        && let Some(engine) = engine()
    {
        engine.memory_was_mapped(bytes, Intent::Whole);
    }
    Ok(())
}

/// The end of the heap.
pub(crate) fn end_of_heap() -> usize {
    // SAFETY: the call returns the present end and changes nothing.
    unsafe { sys::syscall(raw::__NR_brk, [0; 6]) }.unwrap_or(usize::MAX)
}

/// brk(2) as the kernel has it: returns the end of the heap, which has moved where that was
/// possible.
#[cfg(target_arch = "x86_64")]
pub(crate) fn move_end_of_heap(end: usize) -> usize {
    let before = end_of_heap();
    // SAFETY: the program's own call.
    let now = unsafe { sys::syscall(raw::__NR_brk, [end, 0, 0, 0, 0, 0]) }.unwrap_or(before);
    if let Some(engine) = engine().filter(|_| now > before) {
        engine.memory_was_mapped(now - before, Intent::Whole);
    }
    now
}

/// brk(2).
///
/// # Safety
/// As brk.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brk(end: *mut c_void) -> c_int {
    let before = end_of_heap();
    // SAFETY: by the caller's contract; the C library keeps the end of the heap in a variable of
    // its own.
    let result = unsafe { next!(brk: fn(*mut c_void) -> c_int)(end) };
    if result == 0
        && let Some(engine) = engine()
    {
        engine.memory_was_mapped((end as usize).saturating_sub(before), Intent::Whole);
    }
    result
}

/// sbrk(3).
///
/// # Safety
/// As sbrk.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sbrk(bytes: isize) -> *mut c_void {
    // SAFETY: by the caller's contract.
    let result = unsafe { next!(sbrk: fn(isize) -> *mut c_void)(bytes) };
    if bytes > 0
        && let Some(engine) = engine()
    {
        engine.memory_was_mapped(bytes as usize, Intent::Whole);
    }
    result
}
