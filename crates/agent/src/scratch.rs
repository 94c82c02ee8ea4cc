//! A little memory for the duration of a call, where nothing may be allocated: in a child made by
//! vfork, in a signal handler.

use crate::libc;
use core::ffi::c_void;
use folioswap_pager::kernel::{sys, window};
use linux_raw_sys::general as raw;

/// Words taken from the caller's stack in the ordinary case: 1 KiB, because a signal handler may
/// have only a small stack of its own.
const SMALL: usize = 128;
/// Most words taken from a stack: 16 KiB.
const LARGE: usize = 2048;

/// The system has no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory;

impl NoMemory {
    /// The error number for it.
    pub const ERRNO: i32 = linux_raw_sys::errno::ENOMEM as i32;
}

/// Calls `work` with this many zeroed words: on the stack if they are few, else in a mapping. An
/// exec that succeeds within `work` leaves the mapping behind in the old address space (a parent's,
/// in a child made by vfork).
///
/// # Errors
/// [`NoMemory`]: `work` was not called.
pub fn with(words: usize, work: &mut dyn FnMut(&mut [usize])) -> Result<(), NoMemory> {
    if words > LARGE {
        return in_mapping(words, work);
    }
    if words > SMALL {
        on_stack::<LARGE>(words, work)
    } else {
        on_stack::<SMALL>(words, work)
    }
    Ok(())
}

#[inline(never)]
fn on_stack<const WORDS: usize>(words: usize, work: &mut dyn FnMut(&mut [usize])) {
    work(&mut [0; WORDS][..words]);
}

fn in_mapping(words: usize, work: &mut dyn FnMut(&mut [usize])) -> Result<(), NoMemory> {
    let bytes = words * size_of::<usize>();
    let protection = (raw::PROT_READ | raw::PROT_WRITE) as usize;
    let flags = (raw::MAP_PRIVATE | raw::MAP_ANONYMOUS) as usize;
    // SAFETY: the mapping is new.
    let start = unsafe {
        sys::syscall(raw::__NR_mmap, [window::place(bytes) as usize, bytes, protection, flags, usize::MAX, 0])
    }
    .map_err(|_| NoMemory)?;
    // SAFETY: the memory is zeroed, page aligned, that large, and ours alone.
    work(unsafe { core::slice::from_raw_parts_mut(start as *mut usize, words) });
    // `work` returns its result in errno too.
    let errno = libc::errno();
    // SAFETY: the mapping was made above, and `work` no longer uses it.
    let _ = unsafe { sys::syscall(raw::__NR_munmap, [start, bytes, 0, 0, 0, 0]) };
    libc::set_errno(errno);
    Ok(())
}

/// Text that is composed in such memory.
pub struct Text<'a> {
    into: &'a mut [u8],
    length: usize,
}

impl<'a> Text<'a> {
    /// Number of words that hold this many bytes.
    pub const fn words(bytes: usize) -> usize {
        bytes.div_ceil(size_of::<usize>())
    }

    /// An empty text in these words.
    pub fn new(words: &'a mut [usize]) -> Self {
        let bytes = size_of_val(words);
        // SAFETY: the same memory, borrowed for as long; every byte is initialised.
        Text { into: unsafe { core::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), bytes) }, length: 0 }
    }

    /// Adds bytes.
    ///
    /// # Panics
    /// When the words do not hold them: the caller has miscounted.
    pub fn push(&mut self, bytes: &[u8]) {
        self.into[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    /// Adds a terminator and returns the start of the string that it ends, `from` bytes from the
    /// start of the text.
    pub fn end(&mut self, from: usize) -> *const core::ffi::c_char {
        self.push(&[0]);
        self.into[from..].as_ptr().cast::<c_void>().cast()
    }

    /// Bytes so far.
    pub fn length(&self) -> usize {
        self.length
    }
}
