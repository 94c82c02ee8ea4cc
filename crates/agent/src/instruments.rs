//! Programs under an instrument that keeps books of every byte of their memory, and of every system
//! call and thread: AddressSanitizer and Valgrind. They stay unmanaged: the books of the one take
//! 16 TiB of address space, the other knows no thread of ours.

use crate::libc;
use folioswap_group::units::PAGE_SIZE;
use folioswap_pager::kernel::sys;
use linux_raw_sys::general as raw;

/// The start of AddressSanitizer's books on x86-64, which nothing else has a reason to map
/// (compiler-rt/lib/asan/asan_mapping.h). A program that has the sanitizer linked in shows no name.
const BOOKS: usize = 0x7fff_8000;

/// The start of the names of the objects that Valgrind preloads.
const VALGRIND: &[u8] = b"/vgpreload_";

/// Whether an instrument watches this process. `preload` is the value of LD_PRELOAD. For the
/// constructor: the instruments are there before it, once the program's allocator has been called.
pub fn is_watched(preload: &[u8]) -> bool {
    if preload.windows(VALGRIND.len()).any(|part| part == VALGRIND) || libc::has_address_sanitizer() {
        return true;
    }
    libc::wake_allocator();
    is_mapped(BOOKS)
}

/// Whether something is mapped at this address.
pub fn is_mapped(address: usize) -> bool {
    let arguments = [address & !(PAGE_SIZE - 1), PAGE_SIZE, raw::MS_ASYNC as usize, 0, 0, 0];
    // SAFETY: with this flag the call only looks for mappings.
    unsafe { sys::syscall(raw::__NR_msync, arguments) }.is_ok()
}
