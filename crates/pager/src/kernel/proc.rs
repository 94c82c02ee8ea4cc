//! Files of `/proc`, read without allocation: sizes, faults and CPUs of a process and its threads.

use crate::units::PAGE;
use core::ffi::CStr;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

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

/// Where `/proc` shows a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// It is the calling one.
    Own,
    /// Under this number.
    As(u32),
    /// By this descriptor of its directory, which stays open: what is mounted over `/proc` since,
    /// or another root directory, changes nothing.
    By(i32),
    /// Nowhere: the `/proc` is another process-id namespace's, or there is none.
    Nowhere,
}

impl Shown {
    /// Opens the file `name` of the process.
    ///
    /// # Errors
    /// NOENT: it is shown nowhere. Else open(2)'s.
    pub fn open(self, name: &[u8]) -> Result<OwnedFd, Errno> {
        self.directory()?.open(name)
    }

    /// Opens the file `name` of one of its threads.
    ///
    /// # Errors
    /// NOENT: it is shown nowhere, or has no such thread. Else open(2)'s.
    pub fn open_of_thread(self, thread: u32, name: &[u8]) -> Result<OwnedFd, Errno> {
        let mut path = self.directory()?;
        path.push(b"task/");
        path.push_number(thread);
        path.push(b"/");
        path.open(name)
    }

    /// Opens the directory of the process, for looking up names in it only.
    ///
    /// # Errors
    /// NOENT: it is shown nowhere. Else open(2)'s.
    pub fn open_directory(self) -> Result<OwnedFd, Errno> {
        self.directory()?.open_with(OFlags::PATH | OFlags::DIRECTORY)
    }

    fn directory(self) -> Result<Path, Errno> {
        let mut path = Path { bytes: [0; Path::MAX], length: 0, beneath: None };
        match self {
            Shown::Own => path.push(b"/proc/self/"),
            Shown::As(number) => {
                path.push(b"/proc/");
                path.push_number(number);
                path.push(b"/");
            }
            Shown::By(directory) => path.beneath = Some(directory),
            Shown::Nowhere => return Err(Errno::NOENT),
        }
        Ok(path)
    }
}

/// A path, with zeroes behind it.
struct Path {
    bytes: [u8; Path::MAX],
    length: usize,
    /// The directory in which it begins, if it is relative.
    beneath: Option<i32>,
}

impl Path {
    /// More than any path of these takes.
    const MAX: usize = 64;

    fn push(&mut self, part: &[u8]) {
        let end = self.length + part.len();
        self.bytes[self.length..end].copy_from_slice(part);
        self.length = end;
    }

    fn push_number(&mut self, number: u32) {
        let mut digits = [0u8; 10];
        let mut first = digits.len();
        let mut rest = number;
        loop {
            first -= 1;
            digits[first] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.push(&digits[first..]);
    }

    fn open(mut self, name: &[u8]) -> Result<OwnedFd, Errno> {
        self.push(name);
        self.open_with(OFlags::RDONLY)
    }

    fn open_with(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = CStr::from_bytes_until_nul(&self.bytes).map_err(|_| Errno::NAMETOOLONG)?;
        // SAFETY: such a descriptor is in the pager threads' table and stays open.
        let start = self.beneath.map_or(CWD, |directory| unsafe { BorrowedFd::borrow_raw(directory) });
        rustix::fs::openat(start, path, flags | OFlags::CLOEXEC, Mode::empty())
    }
}

/// Returns the number of a process's parent, from its `stat`, as this `/proc` counts processes;
/// `None` where it does not show the parent.
pub fn parent_number(text: &[u8]) -> Option<u32> {
    stat_field(text, 4).and_then(|number| number.try_into().ok()).filter(|&number| number != 0)
}

/// Returns for how many nanoseconds a thread has run, from its `schedstat`.
pub fn run_ns(text: &[u8]) -> Option<u64> {
    decimal(text.split(|&byte| byte == b' ').next()?)
}

/// Returns the minor faults in `/proc/self/stat`.
pub fn minor_faults(text: &[u8]) -> Option<u64> {
    stat_field(text, 10)
}

/// Returns the CPU that a thread ran on last, from its `stat`.
pub fn last_cpu(text: &[u8]) -> Option<u32> {
    stat_field(text, 39).and_then(|cpu| cpu.try_into().ok())
}

/// Returns the number after `name` in a file like `/proc/self/smaps_rollup` (which says kB), in
/// bytes.
pub fn field_bytes(text: &[u8], name: &[u8]) -> Option<u64> {
    field_number(text, name).map(|kilobytes| kilobytes * 1024)
}

/// Returns the number after `name` in a file like `/proc/self/status`.
pub fn field_number(text: &[u8], name: &[u8]) -> Option<u64> {
    let line = text.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(name))?;
    let number = line.trim_ascii_start();
    let digits = number.iter().take_while(|byte| byte.is_ascii_digit()).count();
    decimal(&number[..digits])
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
