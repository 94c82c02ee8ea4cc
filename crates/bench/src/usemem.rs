//! A program with the memory accesses of vm-scalability's usemem: every `step` bytes a word is
//! written that holds its own index, in order or at random. The options have the names and meanings
//! of usemem's; the code is our own.

use crate::data::PAGE;
use crate::memory::Mapping;
use crate::touch::Timing;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const WORD: usize = size_of::<u64>();
const PAGE_WORDS: usize = PAGE / WORD;

/// The options of usemem.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes that each process uses.
    pub size: u64,
    /// `-n`: processes.
    pub processes: usize,
    /// `-j`: bytes from one access to the next, a multiple of 8. Random accesses are as many.
    pub step: usize,
    /// `-R`: random accesses.
    pub random: bool,
    /// `-y`: all processes begin when all have allocated.
    pub sync_rw: bool,
    /// `-x`: all processes free when all have ended.
    pub sync_free: bool,
    /// `--init-time`: the time before the first access does not count.
    pub init_time: bool,
    /// Reads everything again afterwards and compares; usemem has no such option.
    pub check: bool,
}

/// The value that an access to word `index` writes.
const fn word(index: usize) -> u64 {
    index as u64
}

/// A linear congruential sequence modulo 2^48, as nrand48(3) has it. Any sequence that repeats with
/// its seed would do.
struct Nrand48(u64);

impl Nrand48 {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5_DEEC_E66D).wrapping_add(0xB) & ((1 << 48) - 1);
        ((self.0 as u128 * below as u128) >> 48) as usize
    }
}

/// Calls `each` with the index of every word that is written, in order.
fn accesses(options: &Options, process: usize, mut each: impl FnMut(usize)) {
    let words = options.size as usize / WORD;
    let step = (options.step / WORD).max(1);
    let mut random = Nrand48(0x1234_330E ^ (process as u64) << 16);
    for index in (0..words).step_by(step) {
        each(if options.random { random.next(words) } else { index });
    }
}

/// The part (0 to 1) of the pages that consist of one word repeated after a pass in order. zram and
/// folioswap store such pages as nothing.
pub fn same_filled(step: usize) -> f64 {
    let step = (step / WORD).max(1);
    let pages = 4096;
    let same = (0..pages).filter(|page| {
        let mut words = (page * PAGE_WORDS..(page + 1) * PAGE_WORDS)
            .map(|index| if index.is_multiple_of(step) { word(index) } else { 0 });
        let first = words.next();
        words.all(|word| Some(word) == first)
    });
    same.count() as f64 / pages as f64
}

/// Runs all processes. `tell` is called for each process that has ended, with the phases `access`
/// and `free`.
///
/// # Errors
/// The failure of a process, such as the first wrong word.
pub fn usemem(options: &Options, mut tell: impl FnMut(Timing)) -> Result<(), String> {
    let rendezvous = Rendezvous::new(options.processes).map_err(|error| format!("shared memory: {error}"))?;
    let mut children = Vec::new();
    for process in 0..options.processes {
        // SAFETY: this process has one thread.
        match unsafe { libc::fork() } {
            0 => {
                let result = work(options, process, &rendezvous);
                if let Err(error) = &result {
                    eprintln!("usemem: process {process}: {error}");
                }
                // SAFETY: _exit ends the child without running what the parent has registered.
                unsafe { libc::_exit(i32::from(result.is_err())) };
            }
            -1 => {
                let error = io::Error::last_os_error();
                rendezvous.give_up();
                return Err(format!("fork: {error}"));
            }
            pid => children.push(pid),
        }
    }
    let mut failed = Ok(());
    // Children are awaited in the order in which they end, because the others must not wait for one
    // that fails.
    for _ in 0..children.len() {
        let mut status = 0;
        // SAFETY: the call waits for our own children; there are no others.
        let ended = unsafe { libc::waitpid(-1, &raw mut status, 0) };
        let Some(process) = children.iter().position(|&pid| pid == ended) else {
            return Err(format!("waiting for the processes: {}", io::Error::last_os_error()));
        };
        if status != 0 {
            rendezvous.give_up();
            failed = Err(format!("process {process} ended with status {status:#x}"));
            continue;
        }
        for (phase, slot) in [("access", 0), ("free", 1)] {
            let seconds = f64::from(rendezvous.microseconds(process, slot).load(Ordering::Acquire)) / 1e6;
            let mb_per_s = if seconds > 0.0 { options.size as f64 / 1e6 / seconds } else { 0.0 };
            tell(Timing { phase: phase.to_owned(), process, seconds, mb_per_s, ..Timing::default() });
        }
    }
    failed
}

fn work(options: &Options, process: usize, rendezvous: &Rendezvous) -> Result<(), String> {
    let mut begin = Instant::now();
    let mut memory = Mapping::new(options.size as usize);
    if options.sync_rw {
        rendezvous.meet(0);
    }
    if options.init_time {
        begin = Instant::now();
    }
    let start = memory.as_mut_ptr().cast::<u64>();
    accesses(options, process, |index| {
        // SAFETY: the word lies within the mapping. The write is volatile because each one is an
        // access that is measured.
        unsafe { start.add(index).write_volatile(word(index)) };
    });
    rendezvous.microseconds(process, 0).store(microseconds(begin.elapsed()), Ordering::Release);
    if options.check {
        check(options, process, &memory)?;
    }
    if options.sync_free {
        rendezvous.meet(1);
    }
    let begin = Instant::now();
    drop(memory);
    rendezvous.microseconds(process, 1).store(microseconds(begin.elapsed()).max(1), Ordering::Release);
    Ok(())
}

fn microseconds(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

/// Checks that every word that was written holds its index, and that all others are zero.
fn check(options: &Options, process: usize, memory: &Mapping) -> Result<(), String> {
    let (words, _) = memory.as_chunks::<WORD>();
    let mut wrong = None;
    accesses(options, process, |index| {
        if u64::from_ne_bytes(words[index]) != word(index) && wrong.is_none() {
            wrong = Some(index);
        }
    });
    let odd = |(index, found): (usize, &[u8; WORD])| {
        let found = u64::from_ne_bytes(*found);
        found != 0 && found != word(index)
    };
    match wrong.or_else(|| words.iter().enumerate().position(odd)) {
        None => Ok(()),
        Some(index) => {
            Err(format!("word {index} holds {:#x}, not its index", u64::from_ne_bytes(words[index])))
        }
    }
}

/// Memory that the processes share: two meeting points, and two durations of each process.
struct Rendezvous {
    words: &'static [AtomicU32],
    processes: u32,
}

const MEETINGS: usize = 2;
const GIVEN_UP: u32 = 1 << 31;

impl Rendezvous {
    fn new(processes: usize) -> io::Result<Rendezvous> {
        let count = MEETINGS + 2 * processes;
        // SAFETY: this is a new mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                count * size_of::<AtomicU32>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the memory was just mapped, is zero, stays mapped as long as the process lives,
        // and is accessed as atomics only.
        let words = unsafe { std::slice::from_raw_parts(start.cast(), count) };
        Ok(Rendezvous { words, processes: processes as u32 })
    }

    fn microseconds(&self, process: usize, slot: usize) -> &AtomicU32 {
        &self.words[MEETINGS + 2 * process + slot]
    }

    /// Waits until all processes have come to a meeting point, or one has given up.
    fn meet(&self, meeting: usize) {
        let came = &self.words[meeting];
        came.fetch_add(1, Ordering::AcqRel);
        while came.load(Ordering::Acquire) < self.processes {
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// A process has failed: releases all that wait for it.
    fn give_up(&self) {
        self.words[..MEETINGS].iter().for_each(|came| came.store(GIVEN_UP, Ordering::Release));
    }
}

#[cfg(test)]
mod tests;
