//! System calls of the gate's own, from within the range that is let through.

use crate::confined::is_confined;
use crate::entry;
use crate::hazard::PAGE;
use linux_raw_sys::general as raw;

/// An error number of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub u16);

impl Errno {
    /// The kernel's word for this error: the negative number.
    pub(crate) fn word(self) -> u64 {
        (self.0 as u64).wrapping_neg()
    }
}

/// The kernel's answer as a result.
pub(crate) fn outcome(word: u64) -> Result<u64, Errno> {
    match word as i64 {
        error @ -4095..=-1 => Err(Errno((-error) as u16)),
        _ => Ok(word),
    }
}

/// Makes a system call.
///
/// # Safety
/// The arguments must be those that the call demands.
pub(crate) unsafe fn call(number: u32, arguments: [u64; 6]) -> Result<u64, Errno> {
    // SAFETY: the caller's.
    outcome(unsafe { entry::syscall(number as u64, arguments) })
}

/// The calling thread's id.
pub(crate) fn thread_id() -> u32 {
    // SAFETY: no arguments.
    unsafe { call(raw::__NR_gettid, [0; 6]) }.unwrap_or(0) as u32
}

/// Sends a signal to a thread of this process.
pub(crate) fn send(signal: u32, thread: u32) -> Result<(), Errno> {
    // SAFETY: takes numbers only.
    unsafe {
        let process = call(raw::__NR_getpid, [0; 6])?;
        call(raw::__NR_tgkill, [process, thread as u64, signal as u64, 0, 0, 0])?;
    }
    Ok(())
}

/// Sends a signal to the calling thread.
pub(crate) fn raise(signal: u32) {
    let _ = send(signal, thread_id());
}

pub(crate) fn sleep_ns(ns: u64) {
    let time = [0, ns];
    // SAFETY: reads two words.
    let _ = unsafe { call(raw::__NR_nanosleep, [time.as_ptr() as u64, 0, 0, 0, 0, 0]) };
}

/// Sleeps for some 100 microseconds, where no filter of the program's may forbid it.
pub(crate) fn sleep_a_little() {
    if !is_confined() {
        sleep_ns(50_000);
    }
}

/// A descriptor, closed at the end.
pub(crate) struct File(u64);

impl File {
    /// `flags` are those of openat(2); the descriptor is closed by an exec whatever they are.
    pub(crate) fn open(path: &core::ffi::CStr, flags: u32) -> Result<File, Errno> {
        let here = raw::AT_FDCWD as i64 as u64;
        let flags = (flags | raw::O_CLOEXEC) as u64;
        // SAFETY: reads a string.
        let opened = unsafe { call(raw::__NR_openat, [here, path.as_ptr() as u64, flags, 0, 0, 0]) };
        opened.map(File)
    }

    pub(crate) fn descriptor(&self) -> u64 {
        self.0
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: closes the descriptor that `open` made.
        let _ = unsafe { call(raw::__NR_close, [self.0, 0, 0, 0, 0, 0]) };
    }
}

/// Lets other threads run, where no filter of the program's may forbid it.
pub(crate) fn give_way() {
    if !is_confined() {
        // SAFETY: no arguments.
        let _ = unsafe { call(raw::__NR_sched_yield, [0; 6]) };
    }
}

/// Sets the mask of blocked signals; returns the one before.
pub(crate) fn set_mask(mask: u64) -> u64 {
    change_mask(raw::SIG_SETMASK, mask)
}

/// Takes signals out of the mask of blocked ones; returns the one before.
pub(crate) fn unblock(signals: u64) -> u64 {
    change_mask(raw::SIG_UNBLOCK, signals)
}

fn change_mask(how: u32, mask: u64) -> u64 {
    let mut before = 0u64;
    let arguments =
        [how as u64, &raw const mask as u64, &raw mut before as u64, size_of::<u64>() as u64, 0, 0];
    // SAFETY: reads one word and writes one.
    let _ = unsafe { call(raw::__NR_rt_sigprocmask, arguments) };
    before
}

/// Reads words that the program points to, which need not be there. `here` is an address that
/// certainly is; its page is read without asking the kernel. Returns whether all could be read.
pub(crate) fn read_words(from: u64, to: &mut [u64], here: u64) -> Readable {
    read_bytes(from, bytes_of(to), here)
}

/// The bytes of words.
pub(crate) fn bytes_of(words: &mut [u64]) -> &mut [u8] {
    // SAFETY: any bytes are a value of words.
    unsafe { core::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), size_of_val(words)) }
}

/// Writes words for the program, as the kernel would, if they could be read there just before.
pub(crate) fn write_words<const COUNT: usize>(to: u64, words: &[u64; COUNT], here: u64) -> Readable {
    let readable = read_words(to, &mut [0; COUNT], here);
    if readable == Readable::Yes {
        // SAFETY: the address could be read just now; the kernel would write there too.
        unsafe { (to as *mut [u64; COUNT]).write_unaligned(*words) };
    }
    readable
}

/// Has the kernel read memory of this process; returns how many bytes could be read.
fn read_remote(from: u64, to: &mut [u8]) -> Result<u64, Errno> {
    let local = [to.as_mut_ptr() as u64, to.len() as u64];
    let remote = [from, to.len() as u64];
    // The process is named by this thread: the first one may have ended.
    let arguments = [thread_id() as u64, local.as_ptr() as u64, 1, remote.as_ptr() as u64, 1, 0];
    // SAFETY: the kernel writes at most the slice's bytes.
    unsafe { call(raw::__NR_process_vm_readv, arguments) }
}

/// The same for bytes.
pub(crate) fn read_bytes(from: u64, to: &mut [u8], here: u64) -> Readable {
    let last = from.wrapping_add((to.len() as u64).wrapping_sub(1));
    if from / PAGE == here / PAGE && last / PAGE == here / PAGE || is_confined() {
        // SAFETY: the bytes lie in a page that is mapped; or the program's filter may forbid the
        // call that finds out, and a pointer that leads nowhere is a fault of the program.
        unsafe { copy(from, to) };
        return Readable::Yes;
    }
    // A filter forbids the call: a pointer that leads nowhere then is a fault of the program.
    peek_bytes(from, to).unwrap_or_else(|_| {
        // SAFETY: as good as the program's pointer.
        unsafe { copy(from, to) };
        Readable::Yes
    })
}

/// The same for an address that nobody has promised to be one.
///
/// # Errors
/// The kernel does not say: a filter forbids the call.
pub(crate) fn peek_words(from: u64, to: &mut [u64]) -> Result<Readable, Errno> {
    peek_bytes(from, bytes_of(to))
}

fn peek_bytes(from: u64, to: &mut [u8]) -> Result<Readable, Errno> {
    const FAULT: Errno = Errno(linux_raw_sys::errno::EFAULT as u16);
    match read_remote(from, to) {
        Ok(read) if read == to.len() as u64 => Ok(Readable::Yes),
        Ok(_) | Err(FAULT) => Ok(Readable::No),
        Err(errno) => Err(errno),
    }
}

/// Whether the program's memory could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readable {
    Yes,
    No,
}

/// # Safety
/// The bytes at `from` must be mapped.
pub(crate) unsafe fn copy(from: u64, to: &mut [u8]) {
    // SAFETY: the caller's; the slice is no memory that the program knows.
    unsafe { core::ptr::copy_nonoverlapping(from as *const u8, to.as_mut_ptr(), to.len()) };
}
