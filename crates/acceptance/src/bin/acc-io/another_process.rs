//! Reads and writes by another process.

use crate::{Outcome, RUN, content, evicted, expect, runs};
use folioswap_acceptance::data::PAGE;
use folioswap_acceptance::memory::Mapping;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Another process reads and writes the swapped-out memory of this one.
pub fn by_another(bytes: usize) -> Outcome {
    let memory = evicted(bytes);
    // SAFETY: single-threaded here.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let result = read_and_write_the_parent(&memory);
        if let Err(error) = &result {
            eprintln!("acc-io: {error}");
        }
        std::process::exit(i32::from(result.is_err()));
    }
    let mut status = 0;
    // SAFETY: waits for our own child.
    if unsafe { libc::waitpid(child, &raw mut status, 0) } != child || status != 0 {
        return Err(format!("the reading process ended with {status:#x}").into());
    }
    for page in runs(memory.len()) {
        let version = u64::from(is_written_by_another(page));
        expect(&memory[page * PAGE..][..RUN * PAGE], page as u64, version)?;
    }
    Ok(())
}

/// Whether the other process overwrites this transfer: it does every seventh.
fn is_written_by_another(page: usize) -> bool {
    page / RUN % 7 == 3
}

/// Runs in a child: compares and writes the parent's `memory` with process_vm_readv and
/// process_vm_writev, which wait for swapped-out pages, and through /proc/PID/mem, where the kernel
/// does not wait: it may refuse (EIO), but it never gives wrong bytes.
fn read_and_write_the_parent(memory: &Mapping) -> Outcome {
    // SAFETY: getppid has no memory effects.
    let parent = unsafe { libc::getppid() };
    let file = File::open(format!("/proc/{parent}/mem"))?;
    let mut buffer = Mapping::new(RUN * PAGE);
    let (mut refused, mut refused_when_in) = (0, 0);
    for page in runs(memory.len()) {
        let address = memory.as_ptr() as usize + page * PAGE;
        refused += u32::from(read_through_proc(&file, address, page, &mut buffer)? == Answer::Refused);
        buffer.fill(0);
        transfer(Direction::Read, parent, &mut buffer, address)?;
        expect(&buffer, page as u64, 0)?;
        // The page is resident now, or was a moment ago.
        refused_when_in +=
            u32::from(read_through_proc(&file, address, page, &mut buffer)? == Answer::Refused);
    }
    let all = (memory.len() / PAGE / RUN) as u32;
    eprintln!(
        "/proc/PID/mem: {refused} of {all} runs refused, {refused_when_in} when they had just been read"
    );
    if refused_when_in > all / 2 {
        return Err("/proc/PID/mem refuses also what is not swapped out".into());
    }
    for page in runs(memory.len()).filter(|&page| is_written_by_another(page)) {
        let mut fresh = content(page as u64, RUN, 1);
        transfer(Direction::Write, parent, &mut fresh, memory.as_ptr() as usize + page * PAGE)?;
    }
    Ok(())
}

/// The kernel's answer to a read of a whole transfer.
#[derive(PartialEq)]
enum Answer {
    Read,
    Refused,
}

/// Reads a transfer of another process's memory, and compares the part that was read.
fn read_through_proc(
    file: &File,
    address: usize,
    page: usize,
    buffer: &mut Mapping,
) -> Result<Answer, Box<dyn std::error::Error>> {
    buffer.fill(0);
    match file.read_at(buffer, address as u64) {
        // A part may precede the first swapped-out page; that much must be right.
        Ok(length) => {
            expect(&buffer[..length / PAGE * PAGE], page as u64, 0)?;
            Ok(if length == buffer.len() { Answer::Read } else { Answer::Refused })
        }
        Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(Answer::Refused),
        Err(error) => Err(error.into()),
    }
}

#[derive(Clone, Copy, Debug)]
enum Direction {
    Read,
    Write,
}

/// Copies the whole buffer from or to an address of another process.
fn transfer(direction: Direction, process: i32, buffer: &mut Mapping, address: usize) -> Outcome {
    let length = buffer.len();
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: length };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: length };
    // SAFETY: here only `buffer` is written; there, a range that the other process expects to be
    // written.
    let done = unsafe {
        match direction {
            Direction::Read => libc::process_vm_readv(process, &raw const local, 1, &raw const remote, 1, 0),
            Direction::Write => {
                libc::process_vm_writev(process, &raw const local, 1, &raw const remote, 1, 0)
            }
        }
    };
    if done != length as isize {
        return Err(
            format!("{direction:?} by another process: {done}, {}", io::Error::last_os_error()).into()
        );
    }
    Ok(())
}
