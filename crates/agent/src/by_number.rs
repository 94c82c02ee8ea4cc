//! `syscall(3)`: a system call by its number gets what the C library's function of that call gets.
//!
//! Every call but a few is made as the C library makes it, so a child that `clone` starts on a
//! stack of its own returns there. A call by an instruction of the program's own is not seen.

/// Makes the entry of these instructions, which may name the calls that are served, and our
/// functions.
macro_rules! entry {
    ($($instruction:literal,)* $(; $name:ident = $symbol:path)*) => {
        /// syscall(2), the C library's function.
        ///
        /// # Safety
        /// As the call with that number.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn syscall(number: core::ffi::c_long) -> core::ffi::c_long {
            core::arch::naked_asm!(
                $($instruction,)*
                futex = const linux_raw_sys::general::__NR_futex,
                clone = const linux_raw_sys::general::__NR_clone,
                ioctl = const linux_raw_sys::general::__NR_ioctl,
                madvise = const linux_raw_sys::general::__NR_madvise,
                mlockall = const linux_raw_sys::general::__NR_mlockall,
                mmap = const linux_raw_sys::general::__NR_mmap,
                mprotect = const linux_raw_sys::general::__NR_mprotect,
                mremap = const linux_raw_sys::general::__NR_mremap,
                set_tid_address = const linux_raw_sys::general::__NR_set_tid_address,
                served = sym super::served,
                before_clone = sym super::before_clone,
                failed = sym super::failed,
                $($name = sym $symbol,)*
            )
        }
    };
}
pub(crate) use entry;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use crate::kernel_words::{futex, keep_cleared_word};
use crate::{libc, locking, mappings, own_userfault, remapping};
use core::ffi::{c_long, c_void};
use folioswap_pager::kernel::sys;
use linux_raw_sys::general as raw;

/// A call that the entry has recognised by its number, with the arguments as words.
///
/// # Safety
/// As the call with that number.
unsafe extern "C" fn served(
    number: c_long,
    first: usize,
    second: usize,
    third: usize,
    fourth: usize,
    fifth: usize,
    sixth: usize,
) -> c_long {
    let start = first as *mut c_void;
    // SAFETY: by the caller's contract. The kernel takes the low half of a word where it takes an
    // int, as these functions do.
    unsafe {
        match number as u32 {
            raw::__NR_futex => match futex([first, second, third, fourth, fifth, sixth]) {
                Ok(result) => result as c_long,
                Err(errno) => failed(errno),
            },
            raw::__NR_ioctl => own_userfault::ioctl(first as i32, second as u64, third).into(),
            raw::__NR_madvise => mappings::madvise(start, second, third as i32).into(),
            raw::__NR_mlockall => locking::mlockall(first as i32).into(),
            raw::__NR_mmap => {
                mappings::mmap(start, second, third as i32, fourth as i32, fifth as i32, sixth as i64)
                    as c_long
            }
            raw::__NR_mprotect => mappings::mprotect(start, second, third as i32).into(),
            raw::__NR_mremap => {
                remapping::mremap(start, second, third, fourth as i32, fifth as *mut c_void) as c_long
            }
            raw::__NR_set_tid_address => {
                keep_cleared_word(first);
                sys::syscall(raw::__NR_set_tid_address, [first, 0, 0, 0, 0, 0])
                    .map_or_else(|errno| failed(errno.raw_os_error()), |thread| thread as c_long)
            }
            // The entry recognises no other.
            _ => match sys::syscall(number as u32, [first, second, third, fourth, fifth, sixth]) {
                Ok(result) => result as c_long,
                Err(errno) => failed(errno.raw_os_error()),
            },
        }
    }
}

/// Sets errno, and returns what a call that has failed returns.
extern "C" fn failed(errno: i32) -> c_long {
    libc::failed(errno).into()
}

/// What comes before a `clone`, which the entry then makes itself: it is called with the number and
/// the arguments of that. The child's word is the fourth on x86-64, the fifth elsewhere.
///
/// # Safety
/// As clone; only the flags and the child's word are looked at.
unsafe extern "C" fn before_clone(
    _number: c_long,
    flags: usize,
    _stack: usize,
    _parent_word: usize,
    fourth: usize,
    fifth: usize,
) {
    let child_word = if cfg!(target_arch = "x86_64") { fourth } else { fifth };
    if flags as u32 & raw::CLONE_CHILD_CLEARTID != 0 {
        keep_cleared_word(child_word);
    }
}
