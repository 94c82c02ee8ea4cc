//! The system-call gate, where no event tells the pager of forks: it makes them. Where the kernel
//! reports no faults of system calls either, the gate brings in and holds what each call uses.
//!
//! The gate stands before every call of the program, so forks are seen that are not made by the C
//! library. Its own object's calls pass, since hooks and interposed functions make theirs.

use crate::injected::is_injected;
use crate::start::engine;
use crate::{boarding, instruments, kernel_words, libc, locking, mappings, program_call, remapping};
use core::ffi::c_void;
use folioswap_gate::hazard::PAGE;
use folioswap_gate::hooks::{Incident, Managed, Run};
use folioswap_gate::{dispatch, hooks};
use folioswap_pager::engine::Engine;
use folioswap_pager::engine::holds::{self, Populate};
use folioswap_pager::fork::protocol::{self as fork, Made, Stack};
use folioswap_pager::kernel::{image, processor, sys, window};
use linux_raw_sys::errno::ENOSYS;
use linux_raw_sys::general as raw;

/// Puts the gate before the calls of the process, which has one thread.
///
/// # Errors
/// The errno of what the kernel, or a filter of the program's, does not allow.
pub fn arm() -> Result<(), u16> {
    hooks::BEFORE_FORK.set(before_fork);
    hooks::FORK_PARENT.set(after_fork);
    hooks::FORK_CHILD.set(in_child);
    hooks::BEFORE_EXEC.set(boarding::before_exec);
    hooks::EXEC_FAILED.set(boarding::exec_failed);
    if engine().is_some_and(|engine| engine.calls_hold()) {
        end_restartable_sequences();
        hooks::PLACE.set(place);
        hooks::MAPPING.set(map);
        hooks::MANAGED.set(managed_from);
        hooks::REPORT.set(report);
        hooks::HELD_AT_ONCE.set(held_at_once);
    }
    let text = image::text();
    dispatch::let_through(text.start as u64..text.end as u64);
    dispatch::arm().map_err(|errno| errno.0)
}

/// Before [`arm`], in a program that no C library's functions of ours serve: what those learn, the
/// gate says.
pub fn stand_before_injected() {
    hooks::MAPPING.set(map);
    hooks::KERNEL_WRITES.set(keep);
    hooks::THREAD_ENDS.set(kernel_words::keep_robust_list);
}

/// Keeps what the kernel writes at any time: it is written here before, since a fork that did not
/// know of it may have protected it. Nobody waits for the pager, because a thread that begins
/// announces three such words; where the page leaves once more before the pager looks, the thread's
/// own use of it brings it back, and then it stays.
extern "C" fn keep(address: u64, bytes: u64) {
    let (start, end) = (address as usize, address.saturating_add(bytes) as usize);
    if let Some(engine) = engine().filter(|_| instruments::is_mapped(start)) {
        engine.keep_resident(start, end);
        // SAFETY: the page is mapped, and its bytes stay as they are. Where the program may not
        // write, the kernel may not either.
        unsafe { processor::touch_byte(start) };
    }
}

/// The kernel writes to a thread's area for restartable sequences whenever it schedules the thread,
/// and ends the process where the area is away. The first thread has one by now: without it the C
/// library wants none for further threads.
fn end_restartable_sequences() {
    const UNREGISTER: usize = 1;
    const SIGNATURE: usize = 0x5305_3053;
    /// What the C library registers where it says less.
    const BYTES_LEAST: u32 = 32;
    let Some((offset, bytes)) = libc::restartable_sequences() else { return };
    let area = processor::control_block().0.start.wrapping_add_signed(offset);
    for bytes in [bytes.max(BYTES_LEAST), bytes] {
        // SAFETY: the area is the C library's, and no code of ours is in such a sequence.
        if unsafe { sys::syscall(raw::__NR_rseq, [area, bytes as usize, UNREGISTER, SIGNATURE, 0, 0]) }
            .is_ok()
        {
            return;
        }
    }
}

/// An eighth of what the group may have in memory.
fn held_at_once() -> u64 {
    const LEAST: u64 = 256 << 10;
    engine().map_or(u64::MAX, |engine| ((engine.limit_bytes() / 8) & !(PAGE - 1)).max(LEAST))
}

/// Where memory of the gate's own may lie: the pager leaves what is there alone.
extern "C" fn place(bytes: u64) -> u64 {
    window::place(bytes as usize) as u64
}

fn managed_from(page: u64) -> Run {
    let Some(engine) = engine() else { return Run { managed: Managed::No, end: u64::MAX } };
    let holds::Run { is_managed, end } = engine.managed_from((page * PAGE) as usize);
    Run { managed: if is_managed { Managed::Writable } else { Managed::No }, end: end as u64 / PAGE }
}

/// Calls of threads that begin behind a filter of the program's are not seen: nothing may be away
/// then.
extern "C" fn report(incident: Incident, _number: u64) {
    let Some(engine) = engine() else { return };
    match incident {
        Incident::Confined => engine.leave_everything_to_program(),
        Incident::NotConfined => engine.take_everything_back(),
        _ => {}
    }
}

/// Makes a call for mappings, where the pager must know of it, or the kernel would meet pages that
/// are away.
unsafe extern "C" fn map(number: u64, arguments: &[u64; 6]) -> u64 {
    let arguments = arguments.map(|argument| argument as usize);
    let number = number as u32;
    let result = match number {
        // Its requests use memory that no call names.
        raw::__NR_io_uring_setup if engine().is_some_and(Engine::calls_hold) => Err(ENOSYS as i32),
        // SAFETY: the program's own call.
        _ if is_injected() => unsafe { map_as_library(number, arguments) },
        // SAFETY: as above.
        _ => unsafe { map_behind_library(number, arguments) },
    };
    result.map_or_else(|errno| -i64::from(errno) as u64, |answer| answer as u64)
}

/// A call of a program whose C library does not know our functions: they are made here.
///
/// # Safety
/// That of the call.
unsafe fn map_as_library(number: u32, arguments: [usize; 6]) -> Result<usize, i32> {
    let [start, bytes, third, fourth, fifth, _] = arguments;
    // SAFETY: by the caller's contract.
    unsafe {
        match number {
            raw::__NR_mmap => mappings::map(arguments),
            raw::__NR_madvise => mappings::advise(start as *mut c_void, bytes, third as u32).map(|()| 0),
            raw::__NR_mprotect => mappings::protect(start, bytes, third as u32).map(|()| 0),
            raw::__NR_mremap => remapping::remap([start, bytes, third, fourth, fifth]),
            raw::__NR_mlockall => locking::lock_all(start as u32).map(|()| 0),
            raw::__NR_brk => Ok(mappings::move_end_of_heap(start)),
            _ => program_call::make_past_gate(number, arguments),
        }
    }
}

/// A call that our functions have not made, or have made by the C library.
///
/// # Safety
/// That of the call.
unsafe fn map_behind_library(number: u32, arguments: [usize; 6]) -> Result<usize, i32> {
    let [start, bytes, third, ..] = arguments;
    let populate = Populate::of_advice(third as u32).filter(|_| number == raw::__NR_madvise);
    let result = match (engine(), populate) {
        (Some(engine), Some(how)) => engine
            .populate(start, start.saturating_add(bytes), how)
            .map_or_else(|errno| Err(errno.raw_os_error()), |()| Ok(0)),
        // SAFETY: by the caller's contract.
        _ => unsafe { program_call::make_past_gate(number, arguments) },
    };
    if let (raw::__NR_mremap, Ok(to), Some(engine)) = (number, result, engine()) {
        engine.mapping_has_moved(to, bytes, third);
    }
    result
}

extern "C" fn before_fork() {
    if let Some(engine) = engine() {
        // Where no slot of the gate's was free, this is the program's stack.
        let here = 0u8;
        let own = image::range();
        let is_own = (own.start..own.end).contains(&(&raw const here as usize));
        fork::prepare(engine, if is_own { Stack::OfGate } else { Stack::OfProgram });
    }
}

extern "C" fn after_fork(answer: i64) {
    if let Some(engine) = engine() {
        let child = u32::try_from(answer).map_or(Made::Nothing, Made::Child);
        fork::parent(engine, child);
    }
}

extern "C" fn in_child() {
    if let Some(engine) = engine() {
        // SAFETY: the gate calls this first in the child, whose only thread this is. Where the C
        // library has called us before the fork, that was for this one too.
        unsafe { fork::child(engine) };
    }
}
