//! The few system calls that `rustix` does not offer, and the clock.

pub use crate::kernel::processor::syscall;

use linux_raw_sys::general as raw;
use rustix::io::Errno;
use rustix::time::ClockId;

/// `ioctl(2)` with a pointer argument.
///
/// # Safety
/// `argument` must be the one that the request demands.
pub unsafe fn ioctl<T>(fd: i32, request: u32, argument: *mut T) -> Result<usize, Errno> {
    // SAFETY: the caller's.
    unsafe { syscall(raw::__NR_ioctl, [fd as usize, request as usize, argument as usize, 0, 0, 0]) }
}

/// Returns nanoseconds of CLOCK_MONOTONIC. The vDSO is used where there is one: an eighth of the
/// system call's cost.
pub fn now_ns() -> u64 {
    clock_ns(ClockId::Monotonic)
}

/// Returns nanoseconds of CPU time of the calling thread.
pub fn thread_cpu_ns() -> u64 {
    clock_ns(ClockId::ThreadCPUTime)
}

/// Returns nanoseconds of CPU time by the clock of the process or thread `number` that these bits
/// choose (the clock's number: clock_getcpuclockid(3)). Returns `None` if there is none of this
/// number (they end at 2^22).
pub(crate) fn cpu_clock_ns(number: u32, bits: u32) -> Option<u64> {
    /// No process or thread has this number or a larger one.
    const END: u32 = (1 << 22) + 1;
    // Such a number would name the caller, or another clock.
    if !(1..END).contains(&number) {
        return None;
    }
    let clock = ((!number) << 3 | bits) as i32;
    let mut time = [0i64; 2];
    // SAFETY: the kernel writes a timespec of two words.
    unsafe {
        syscall(raw::__NR_clock_gettime, [clock as usize, time.as_mut_ptr() as usize, 0, 0, 0, 0]).ok()?;
    }
    Some(time[0] as u64 * 1_000_000_000 + time[1] as u64)
}

fn clock_ns(clock: ClockId) -> u64 {
    let time = rustix::time::clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the CPU that the calling thread runs on.
pub fn current_cpu() -> u32 {
    let mut cpu = 0u32;
    // SAFETY: the kernel writes one u32.
    let _ = unsafe { syscall(raw::__NR_getcpu, [(&raw mut cpu) as usize, 0, 0, 0, 0, 0]) };
    cpu
}

/// Closes every descriptor in `first..=last` of the calling thread's table.
pub fn close_range(first: u32, last: u32) {
    if first <= last {
        // SAFETY: closing descriptors is memory safe; the caller's table is its own (see
        // `thread::spawn`).
        let _ = unsafe { syscall(raw::__NR_close_range, [first as usize, last as usize, 0, 0, 0, 0]) };
    }
}

/// Returns 128 random bits that nobody can guess.
///
/// # Errors
/// getrandom(2)'s: EPERM or ENOSYS under a filter that the program has installed.
pub fn random() -> Result<[u64; 2], Errno> {
    let mut words = [0u64; 2];
    loop {
        // SAFETY: the kernel writes at most the 16 bytes.
        let got = unsafe {
            syscall(raw::__NR_getrandom, [words.as_mut_ptr() as usize, size_of_val(&words), 0, 0, 0, 0])
        };
        match got {
            Ok(bytes) if bytes == size_of_val(&words) => return Ok(words),
            // Few bytes are never cut short once the kernel has randomness; before that a signal
            // may interrupt the wait.
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Returns the calling thread's id.
pub fn gettid() -> u32 {
    // SAFETY: no arguments.
    unsafe { syscall(raw::__NR_gettid, [0; 6]) }.unwrap_or(0) as u32
}

/// Returns the process's id, asked anew each time (a forked child has another).
pub fn getpid() -> u32 {
    // SAFETY: no arguments.
    unsafe { syscall(raw::__NR_getpid, [0; 6]) }.unwrap_or(0) as u32
}

/// Ends the calling process with SIGKILL; never returns.
pub fn kill_self() -> ! {
    loop {
        // SAFETY: sends a signal to ourselves.
        let _ = unsafe { syscall(raw::__NR_kill, [getpid() as usize, 9, 0, 0, 0, 0]) };
    }
}

/// Ends the calling process with this status; never returns.
pub fn exit_group(status: u8) -> ! {
    loop {
        // SAFETY: the call ends the process.
        let _ = unsafe { syscall(raw::__NR_exit_group, [status as usize, 0, 0, 0, 0, 0]) };
    }
}

/// Lets the calling thread run before the program's threads when it wakes up, however nice they
/// are, where the process may: every thread that waits for it waits for memory.
pub fn raise_priority() {
    const STEPS: isize = 10;
    // SAFETY: reads and changes the calling thread's own nice value. The kernel answers 20 less it,
    // and takes a value that is too low for the lowest one (getpriority(2), setpriority(2)).
    unsafe {
        let Ok(answer) = syscall(raw::__NR_getpriority, [0; 6]) else { return };
        let nice = 20 - answer as isize - STEPS;
        let _ = syscall(raw::__NR_setpriority, [0, 0, nice as usize, 0, 0, 0]);
    }
}

/// Reads the CPUs that the calling thread may run on, one bit each.
pub fn affinity(mask: &mut [u64]) {
    // SAFETY: the kernel writes at most the mask's bytes.
    let _ = unsafe {
        syscall(raw::__NR_sched_getaffinity, [0, size_of_val(mask), mask.as_mut_ptr() as usize, 0, 0, 0])
    };
}

/// Lets the calling thread run on these CPUs only.
///
/// # Errors
/// EINVAL: this process may use none of them.
pub fn set_affinity(mask: &[u64]) -> Result<(), Errno> {
    // SAFETY: the kernel reads the mask.
    let set = unsafe {
        syscall(raw::__NR_sched_setaffinity, [0, size_of_val(mask), mask.as_ptr() as usize, 0, 0, 0])
    };
    set.map(|_| ())
}

/// Reads a byte at each of these (up to 16) addresses of the calling process in the way in which
/// the kernel reads for other processes: pages that are away come back; pages shared after a fork
/// become the process's own without being written to, and pages that userfaultfd protects stay
/// protected. Best effort: where the kernel refuses, or nothing is mapped any more, nothing
/// changes.
pub fn read_bytes(addresses: &[usize]) {
    let mut bytes = [0u8; 16];
    let mut there = [[0usize; 2]; 16];
    let count = addresses.len().min(there.len());
    for (vector, &address) in there.iter_mut().zip(addresses) {
        *vector = [address, 1];
    }
    let here = [(&raw mut bytes) as usize, count];
    let arguments = [getpid() as usize, (&raw const here) as usize, 1, (&raw const there) as usize, count, 0];
    // SAFETY: the kernel writes `count` bytes into the buffer.
    let _ = unsafe { syscall(raw::__NR_process_vm_readv, arguments) };
}

/// Takes all access to `start..end` away.
pub fn forbid(start: usize, end: usize) {
    // SAFETY: whoever asks for this ends who uses that memory.
    let _ = unsafe { syscall(raw::__NR_mprotect, [start, end - start, 0, 0, 0, 0]) };
}

/// Names the calling thread (at most 15 bytes are kept).
pub fn name_thread(name: &core::ffi::CStr) {
    // SAFETY: reads a terminated string.
    let _ = unsafe { syscall(raw::__NR_prctl, [15, name.as_ptr() as usize, 0, 0, 0, 0]) };
}
