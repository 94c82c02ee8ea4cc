//! Files of `/proc`, read without allocation: sizes, faults and CPUs of a process and its threads.

use crate::units::PAGE;
use rustix::fd::BorrowedFd;

/// Sizes of the process, in bytes, from `/proc/self/statm`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessSize {
    /// Address space of private writable mappings and stacks: the memory that can be touched. It
    /// also grows when memory that was reserved without access is made writable, as allocators do;
    /// the size of the complete address space does not tell that.
    pub writable: u64,
    /// Resident anonymous memory.
    pub anonymous: u64,
    /// Resident file and shared memory.
    pub shared: u64,
}

/// Parses `/proc/self/statm`: size, resident, shared, text, lib, data, ... in pages.
pub fn parse_statm(text: &[u8]) -> Option<ProcessSize> {
    let mut fields = text.split(|byte| byte.is_ascii_whitespace()).map(decimal);
    let (_size, resident, shared) = (fields.next()??, fields.next()??, fields.next()??);
    let (_text, _lib, data) = (fields.next()??, fields.next()??, fields.next()??);
    let page = PAGE as u64;
    Some(ProcessSize {
        writable: data * page,
        anonymous: resident.saturating_sub(shared) * page,
        shared: shared * page,
    })
}

fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |value, byte| {
        byte.is_ascii_digit().then(|| value.wrapping_mul(10).wrapping_add(u64::from(byte - b'0')))
    })
}

/// Returns field `number` (from 3 on, as proc_pid_stat(5) counts them) of a `stat` file. The fields
/// are found after the name, which may hold any bytes.
fn stat_field(text: &[u8], number: usize) -> Option<u64> {
    fields_after_name(text)?.nth(number - 3).and_then(decimal)
}

fn fields_after_name(text: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let name_end = text.iter().rposition(|&byte| byte == b')')?;
    Some(text[name_end + 1..].trim_ascii().split(|&byte| byte == b' '))
}

/// The first thread of a process, from the process's `stat`, or any thread, from its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstThread {
    /// It goes on.
    GoesOn,
    /// It has ended by exit(2).
    Ended {
        /// With this status.
        status: u8,
    },
}

impl FirstThread {
    /// Parses a `stat` file; `None` for one that is not complete.
    pub fn of(text: &[u8]) -> Option<Self> {
        let state = fields_after_name(text)?.next()?;
        let status = stat_field(text, 52)?;
        let has_ended = state == b"Z" || state == b"X";
        let ended = FirstThread::Ended { status: (status >> 8) as u8 };
        Some(if has_ended { ended } else { FirstThread::GoesOn })
    }
}

/// Returns how many threads a process has, from its `stat`: those that run, and a first one that
/// has ended.
pub fn thread_count(text: &[u8]) -> Option<u64> {
    stat_field(text, 20)
}

/// Returns the kernel's flags of a thread (`PF_*` in its include/linux/sched.h), from its `stat`.
pub fn thread_flags(text: &[u8]) -> Option<u64> {
    stat_field(text, 9)
}

/// Returns the minor faults in `/proc/self/stat`.
pub fn minor_faults(text: &[u8]) -> Option<u64> {
    stat_field(text, 10)
}

/// Returns the CPU that a thread ran on last, from its `stat`.
pub fn last_cpu(text: &[u8]) -> Option<u32> {
    stat_field(text, 39).and_then(|cpu| cpu.try_into().ok())
}

/// Returns the number after `name` in a file like `/proc/self/status` or `smaps_rollup` (which says
/// kB), in bytes.
pub fn field_bytes(text: &[u8], name: &[u8]) -> Option<u64> {
    let line = text.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(name))?;
    let number = line.trim_ascii_start();
    let digits = number.iter().take_while(|byte| byte.is_ascii_digit()).count();
    decimal(&number[..digits]).map(|kilobytes| kilobytes * 1024)
}

/// Reads a small file of `/proc` from its start.
pub fn read_proc(descriptor: i32, buffer: &mut [u8]) -> &[u8] {
    if descriptor < 0 {
        return &[];
    }
    // SAFETY: the descriptor is in the pager threads' table and stays open.
    let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
    match rustix::io::pread(descriptor, &mut *buffer, 0) {
        Ok(length) => &buffer[..length],
        Err(_) => &[],
    }
}

#[cfg(test)]
mod tests;
