use super::*;
use crate::kernel::process::{self, Child};
use crate::kernel::thread::{self, Place, STACK_BYTES};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Release};

/// No number of the kernel's table is as high.
const CALLS: u32 = 1000;

/// The bit of the numbers of x32, another table for the same architecture.
const X32: u32 = 0x4000_0000;

/// Calls that no filter sees: the kernel's own code for uprobes makes them, and whoever else does
/// is ended by SIGILL.
const UPROBES: [u32; 2] = [335, 336];

/// What a confined process finds. The parts of a wrong one: the call, and what it answered.
struct Found {
    tried: AtomicU32,
    wrong: AtomicU64,
    opened: AtomicU32,
}

fn is_refused(call: u32, arguments: [usize; 6]) -> bool {
    // SAFETY: a refused call does nothing; none of these arguments is an address.
    unsafe { sys::syscall(call, arguments) == Err(Errno::PERM) }
}

/// Arguments with which a call of the list is refused; `None` if it never is.
fn forbidden(when: When) -> Option<[usize; 6]> {
    let mut arguments = [0; 6];
    match when {
        When::Always => return None,
        When::Itself(argument) => arguments[usize::from(argument)] = process::parent() as usize,
        When::Arguments(values) => {
            for &(argument, value) in values {
                arguments[usize::from(argument)] = value as usize;
            }
            arguments[usize::from(values[0].0)] += 1;
        }
        When::Argument(argument, values) => {
            let others = [0, 1, 2, 4, u32::MAX];
            let other = others.iter().find(|&&it| values.iter().all(|(mask, value)| it & mask != *value));
            arguments[usize::from(argument)] = *other? as usize;
        }
    }
    Some(arguments)
}

unsafe extern "C" fn tries_everything(argument: usize) -> ! {
    // SAFETY: the test keeps it until this process has ended.
    let found = unsafe { &*(argument as *const Found) };
    rustix::thread::set_no_new_privs(true).unwrap();
    install(Opening::ForReading, Threads::Own).unwrap();
    for call in (0..CALLS).chain((0..CALLS).map(|call| call | X32)) {
        if UPROBES.contains(&call) {
            continue;
        }
        let listed = LIST.iter().find(|(listed, _)| *listed == call);
        let Some(arguments) = listed.map_or(Some([0; 6]), |&(_, when)| forbidden(when)) else { continue };
        found.tried.fetch_add(1, Release);
        if !is_refused(call, arguments) {
            found.wrong.store(u64::from(call) | 1 << 32, Release);
        }
    }
    let proc = rustix::fs::openat(
        rustix::fs::CWD,
        c"/proc/self/stat",
        rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    );
    found.opened.store(u32::from(proc.is_ok()), Release);
    sys::exit_group(0)
}

/// The real filter, in a process as the pager is one. A list that allows one call more than it says
/// is found.
#[test]
fn every_call_that_is_not_on_the_list_is_refused() {
    let found = Found { tried: AtomicU32::new(0), wrong: AtomicU64::new(0), opened: AtomicU32::new(0) };
    let mut stack = vec![0u8; STACK_BYTES + 64];
    let bottom = stack.as_mut_ptr().wrapping_add(stack.as_ptr().align_offset(64));
    // SAFETY: the stack outlives the process, which is waited for.
    let child = unsafe {
        thread::spawn(bottom, tries_everything, (&raw const found) as usize, Place::Apart).unwrap()
    };
    assert_eq!(process::wait_for(child, 0), Child::Ended);
    let wrong = found.wrong.load(Acquire);
    assert_eq!(wrong, 0, "call {:#x} is not refused", wrong as u32);
    let always = LIST.iter().filter(|(_, when)| matches!(when, When::Always)).count() as u32;
    assert_eq!(found.tried.load(Acquire), 2 * CALLS - always - UPROBES.len() as u32);
    assert_eq!(found.opened.load(Acquire), 1, "a file may be opened for reading");
}

#[test]
fn the_list_names_each_call_once() {
    for (index, (call, _)) in LIST.iter().enumerate() {
        assert!(LIST[..index].iter().all(|(other, _)| other != call), "{call}");
    }
}

#[test]
fn nothing_is_opened_where_nothing_has_to_be() {
    let reading = Program::of(1, Opening::ForReading);
    let never = Program::of(1, Opening::Never);
    let opens = |program: &Program| {
        program.instructions[..program.length].iter().any(|it| it.k == raw::__NR_openat && it.jf > 0)
    };
    assert!(opens(&reading) && !opens(&never));
}
