//! Alternate stacks: each thread has one of ours, on which signals arrive, and may think that it
//! has one of the program's.
//!
//! The kernel keeps the address of ours, so a thread finds it without thread-local storage. Its
//! last bytes have what the program asked for by sigaltstack(2).

use crate::call::answer;
use crate::entry::Path;
use crate::hooks;
use crate::kernel::{Errno, Readable, call, read_words, thread_id, write_words};
use crate::slot::Frame;
use core::sync::atomic::{
    AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use linux_raw_sys::{errno, general as raw};

/// Bytes of an area, and its alignment. The kernel's frame takes up to 11 KiB.
const AREA_BYTES: u64 = 64 << 10;
/// Areas that are mapped together.
const BATCH: u64 = 16;
/// Areas that are known; threads beyond have no alternate stack of ours.
const AREAS: usize = 4096;
/// Places that are tried for a batch.
const PLACES: u32 = 64;
/// Bytes at the end of an area that are no stack.
const HEADER_BYTES: u64 = 64;
const TAKEN: u64 = 1;
const DISABLE: u64 = raw::SS_DISABLE as u64;
const ONSTACK: u64 = raw::SS_ONSTACK as u64;
/// SS_AUTODISARM, which is not honoured.
const AUTODISARM: u64 = 1 << 31;

/// Addresses of areas; bit 0 while a thread has one.
static ALL: [AtomicU64; AREAS] = [const { AtomicU64::new(0) }; AREAS];

/// What a program asked for: as the kernel's stack_t.
#[derive(Clone, Copy)]
pub(crate) struct Programs {
    address: u64,
    flags: u64,
    bytes: u64,
    /// The thread that has the area. The child of a vfork has its parent's.
    thread: u64,
}

const NONE: Programs = Programs { address: 0, flags: 0, bytes: 0, thread: 0 };

impl Programs {
    fn has(&self, stack: u64) -> bool {
        self.bytes != 0 && stack > self.address && stack - self.address <= self.bytes
    }

    /// What a thread with this stack pointer finds.
    fn shown(&self, stack: u64) -> [u64; 3] {
        let state = match self.bytes {
            0 => DISABLE,
            _ if self.has(stack) => ONSTACK,
            _ => 0,
        };
        [self.address, self.flags | state, self.bytes]
    }

    /// The end of this stack, where a handler that wants it begins; none where there is no such
    /// stack, or the thread is on it.
    pub(crate) fn top_for(&self, stack: u64) -> Option<u64> {
        (self.bytes != 0 && !self.has(stack)).then(|| self.address + self.bytes)
    }
}

/// Whether the kernel's alternate stack (address, flags, size) is an area of ours: no program has
/// one that begins and ends so.
pub(crate) fn is_ours([start, flags, bytes]: [u64; 3]) -> bool {
    start.is_multiple_of(AREA_BYTES)
        && bytes == AREA_BYTES - HEADER_BYTES
        && flags as u32 as u64 & DISABLE == 0
}

/// Whether an address lies in the kernel's alternate stack, and that is an area of ours.
pub(crate) fn is_within(stack: [u64; 3], address: u64) -> bool {
    is_ours(stack) && address.wrapping_sub(stack[0]) < stack[2]
}

/// What the program finds in the context of a handler that interrupted it with this stack pointer.
pub(crate) fn shown(area: u64, stack: u64) -> [u64; 3] {
    programs_of(area).shown(stack)
}

/// Flags that the kernel refuses: it leaves the alternate stack as it is at rt_sigreturn.
pub(crate) const REFUSED: u64 = 3;

/// The area in which this address lies.
pub(crate) fn area_of(address: u64) -> u64 {
    address & !(AREA_BYTES - 1)
}

fn header(address: u64) -> *mut Programs {
    (area_of(address) + AREA_BYTES - HEADER_BYTES) as *mut Programs
}

/// What the program asked for in the thread on whose area this address lies.
pub(crate) fn programs_of(address: u64) -> Programs {
    // SAFETY: the caller has the address from the kernel's frame in the area.
    unsafe { header(address).read() }
}

/// Gives the calling thread an alternate stack of ours. `programs` is what it had.
pub(crate) fn install(programs: Option<[u64; 3]>) {
    let Some(area) = take() else { return };
    let [address, _, bytes] = programs.unwrap_or([0, DISABLE, 0]);
    // SAFETY: the area is this thread's.
    unsafe { header(area).write(Programs { address, bytes, thread: thread_id() as u64, ..NONE }) };
    let stack = [area, 0, AREA_BYTES - HEADER_BYTES];
    // SAFETY: the memory is nobody else's until the thread gives it back.
    if unsafe { call(raw::__NR_sigaltstack, [stack.as_ptr() as u64, 0, 0, 0, 0, 0]) }.is_err() {
        give_back(area);
    }
}

/// The kernel's alternate stack of the calling thread: address, flags, size.
pub(crate) fn of_kernel() -> [u64; 3] {
    let mut stack = [0; 3];
    // SAFETY: writes three words.
    let _ = unsafe { call(raw::__NR_sigaltstack, [0, stack.as_mut_ptr() as u64, 0, 0, 0, 0]) };
    stack
}

/// Takes the calling thread's area away, before the thread ends. With all signals blocked.
pub(crate) fn remove() {
    let stack @ [area, ..] = of_kernel();
    // SAFETY: an area of ours is mapped.
    if !is_ours(stack) || unsafe { (*header(area)).thread } != thread_id() as u64 {
        return;
    }
    let none = [0, DISABLE, 0];
    // SAFETY: reads three words.
    if unsafe { call(raw::__NR_sigaltstack, [none.as_ptr() as u64, 0, 0, 0, 0, 0]) }.is_ok() {
        give_back(area);
    }
}

fn give_back(area: u64) {
    for known in &ALL {
        if known.load(Relaxed) == area | TAKEN {
            known.store(area, Release);
            return;
        }
    }
}

/// An area that is free, or a new one.
fn take() -> Option<u64> {
    for _ in 0..2 {
        for known in &ALL {
            let area = known.load(Relaxed);
            if area == 0 {
                break;
            }
            if area & TAKEN == 0 && known.compare_exchange(area, area | TAKEN, Acquire, Relaxed).is_ok() {
                return Some(area);
            }
        }
        map_more()?;
    }
    None
}

fn map_more() -> Option<()> {
    if ALL.last().is_none_or(|last| last.load(Relaxed) != 0) {
        return None;
    }
    let bytes = (BATCH + 1) * AREA_BYTES;
    let protection = (raw::PROT_READ | raw::PROT_WRITE) as u64;
    let flags = raw::MAP_PRIVATE | raw::MAP_ANONYMOUS | raw::MAP_NORESERVE;
    let map = |at, flags: u32| {
        // SAFETY: maps new memory.
        unsafe { call(raw::__NR_mmap, [at, bytes, protection, flags as u64, u64::MAX, 0]) }
    };
    let mapped = match hooks::PLACE.get() {
        None => map(0, flags).ok()?,
        // Something may lie there already.
        Some(place) => (0..PLACES).find_map(|_| match place(bytes) {
            0 => None,
            at => map(at, flags | raw::MAP_FIXED_NOREPLACE).ok(),
        })?,
    };
    let first = mapped.next_multiple_of(AREA_BYTES);
    let mut places = ALL.iter();
    for number in 0..BATCH {
        let area = first + number * AREA_BYTES;
        places.find(|known| known.compare_exchange(0, area, AcqRel, Relaxed).is_ok())?;
    }
    Some(())
}

/// Frees the areas of other threads, in the child of a fork. Returns the calling thread's.
pub(crate) fn forget_others() -> u64 {
    let stack @ [own, ..] = of_kernel();
    if is_ours(stack) {
        // SAFETY: the area is the calling thread's, the only one.
        unsafe { (*header(own)).thread = thread_id() as u64 };
    }
    for known in &ALL {
        let area = known.load(Relaxed);
        if area & TAKEN != 0 && area != own | TAKEN {
            known.store(area & !TAKEN, Relaxed);
        }
    }
    own
}

/// sigaltstack(2), answered for the stack that the program thinks it has.
pub(crate) fn before_altstack(frame: &mut Frame) -> Path {
    let [_, new, old, ..] = frame.saved;
    let stack @ [area, ..] = of_kernel();
    if !is_ours(stack) {
        return Path::Ordinary;
    }
    let here = &raw const *frame as u64;
    // SAFETY: the area is the calling thread's.
    let programs = unsafe { &mut *header(area) };
    let before = *programs;
    let is_on = before.has(frame.stack);
    let mut wanted = [0; 3];
    if new != 0 {
        if read_words(new, &mut wanted, here) == Readable::No {
            return answer(frame, Err(Errno(errno::EFAULT as u16)));
        }
        let [address, flags, bytes] = wanted;
        let mode = flags as u32 as u64 & !AUTODISARM;
        if is_on {
            return answer(frame, Err(Errno(errno::EPERM as u16)));
        }
        if mode & !(DISABLE | ONSTACK) != 0 || mode == DISABLE | ONSTACK {
            return answer(frame, Err(Errno(errno::EINVAL as u16)));
        }
        if before.thread != thread_id() as u64 {
            // The child of a vfork: its parent's stays as it is.
        } else if mode == DISABLE {
            *programs = Programs { thread: before.thread, ..NONE };
        } else if bytes < raw::MINSIGSTKSZ as u64 {
            return answer(frame, Err(Errno(errno::ENOMEM as u16)));
        } else {
            *programs =
                Programs { address, flags: flags as u32 as u64 & AUTODISARM, bytes, thread: before.thread };
        }
    }
    if old != 0 && write_words(old, &before.shown(frame.stack), here) == Readable::No {
        return answer(frame, Err(Errno(errno::EFAULT as u16)));
    }
    answer(frame, Ok(0))
}
