//! The threads of the process, as the kernel shows them in `/proc`.

use crate::kernel::{Errno, File, call};
use linux_raw_sys::{errno, general as raw};

/// Calls `see` with the number of each thread of the process, until one is refused.
///
/// # Errors
/// What `see` said, or that the kernel does not say which there are.
pub(super) fn for_each_thread<E: From<Errno>>(mut see: impl FnMut(u32) -> Result<(), E>) -> Result<(), E> {
    let listing = File::open(c"/proc/thread-self/..", raw::O_RDONLY)?;
    let mut entries = [0u64; 512];
    loop {
        let arguments =
            [listing.descriptor(), entries.as_mut_ptr() as u64, size_of_val(&entries) as u64, 0, 0, 0];
        // SAFETY: the kernel writes at most the array's bytes.
        let bytes = unsafe { call(raw::__NR_getdents64, arguments) }? as usize;
        if bytes == 0 {
            return Ok(());
        }
        let mut at = 0;
        while at < bytes {
            const LENGTH: usize = 16;
            const NAME: usize = 19;
            let base = entries.as_ptr().cast::<u8>();
            // SAFETY: the kernel has written whole entries: a length, and a name with its end.
            let (length, name) = unsafe {
                let length = base.add(at + LENGTH).cast::<u16>().read_unaligned() as usize;
                (length, core::ffi::CStr::from_ptr(base.add(at + NAME).cast()))
            };
            if let Some(id) = number_of(name.to_bytes()) {
                see(id)?;
            }
            at += length;
        }
    }
}

fn number_of(name: &[u8]) -> Option<u32> {
    name.iter().try_fold(0u32, |number, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        number.checked_mul(10)?.checked_add(digit as u32)
    })
}

/// Whether a thread runs code of the program, and has not ended. Where the kernel does not say, it
/// does.
pub(super) fn takes_signals(id: u32) -> bool {
    /// Of a thread that the kernel has made for io_uring, or vhost (PF_IO_WORKER and PF_USER_WORKER
    /// of its include/linux/sched.h).
    const KERNELS: u32 = 0x10 | 0x4000;
    let mut text = [0u8; 512];
    let stat = match read_of_thread(id, b"/stat", &mut text) {
        Ok(bytes) => &text[..bytes],
        Err(Errno(errno)) => return !matches!(errno as u32, errno::ENOENT | errno::ESRCH),
    };
    // The state follows the name, which ends with the last bracket; the flags are the sixth after.
    let Some(end) = stat.iter().rposition(|byte| *byte == b')') else { return true };
    let mut fields = stat[end + 1..].split(|byte| *byte == b' ').filter(|field| !field.is_empty());
    let has_ended = matches!(fields.next(), Some([b'Z' | b'X', ..]));
    !has_ended && fields.nth(5).and_then(number_of).unwrap_or(0) & KERNELS == 0
}

/// Whether a thread blocks signal 33. Where the kernel does not say, it does not.
pub(super) fn blocks_signal(id: u32) -> bool {
    let mut text = [0u8; 2048];
    read_of_thread(id, b"/status", &mut text).is_ok_and(|bytes| is_in_mask(&text[..bytes]))
}

/// Whether the line of blocked signals has signal 33: of sixteen digits the ninth from the end has
/// signals 33 to 36.
fn is_in_mask(status: &[u8]) -> bool {
    const NAME: &[u8] = b"\nSigBlk:\t";
    const DIGIT: usize = 16 - 9;
    let Some(at) = status.windows(NAME.len()).position(|window| window == NAME) else { return false };
    let digit = status.get(at + NAME.len() + DIGIT).and_then(|digit| (*digit as char).to_digit(16));
    digit.is_some_and(|digit| digit & 1 != 0)
}

/// Reads the beginning of a file of a thread's; returns the bytes.
fn read_of_thread(id: u32, file: &[u8], to: &mut [u8]) -> Result<usize, Errno> {
    const BEFORE: &[u8] = b"/proc/thread-self/../";
    let mut digits = [0u8; 10];
    let (mut first, mut rest) = (digits.len(), id);
    while rest > 0 {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let mut path = [0u8; 48];
    let bytes = BEFORE.iter().chain(&digits[first..]).chain(file);
    path.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
    let path = core::ffi::CStr::from_bytes_until_nul(&path).map_err(|_| Errno(errno::ENAMETOOLONG as u16))?;
    let file = File::open(path, raw::O_RDONLY)?;
    let arguments = [file.descriptor(), to.as_mut_ptr() as u64, to.len() as u64, 0, 0, 0];
    // SAFETY: the kernel writes at most the slice's bytes.
    Ok(unsafe { call(raw::__NR_read, arguments) }? as usize)
}
