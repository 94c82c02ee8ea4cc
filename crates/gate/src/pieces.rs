//! Calls with long buffers, where what a call uses must stay in memory: those over more than the
//! pager allows are made in pieces, so that a call over more than a program may have in memory does
//! not hold all of it at once.
//!
//! Reading and writing files goes on until all is done, as the kernel would. Of a stream that is
//! read, pieces after the first do not wait: a count that is less than was asked for says that
//! nothing more is there. Messages, and what the program asks of a stream beside its bytes, stay
//! whole.

use crate::kernel::{Errno, call};
use crate::pins;
use crate::slot::Frame;
use crate::{confined, hooks, inside};
use linux_raw_sys::{errno, general as raw, net};

/// The length is this argument, and the address of the buffer, or of the vector, the one before.
const LENGTH: usize = 3;
/// The offset in a file, of pread64 and pwrite64; the flags of recvfrom and sendto.
const FOURTH: usize = 4;
const S_IFMT: u32 = raw::S_IFMT;
/// Major number of `/dev/zero`, `/dev/null` and their like.
const MEMORY_DEVICES: u64 = 1;
/// Flags of messages with which a call stays whole: MSG_OOB, MSG_TRUNC, MSG_ERRQUEUE, MSG_ZEROCOPY
/// and MSG_FASTOPEN.
const WHOLE: u32 = 1 | 0x20 | 0x2000 | 0x400_0000 | 0x2000_0000;
/// The request of ioctl(2) for how many bytes wait in a socket.
const FIONREAD: u64 = 0x541b;
const RWF_NOWAIT: u64 = 8;

/// How pieces after the first are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// As the first.
    Alike,
    /// By recvfrom, without waiting.
    OfSocket,
    /// By preadv2, without waiting.
    OfPipe,
    /// There are none: what waits stays there, and is looked at again at a greater length.
    Peek,
}

/// Makes a call with a long buffer in pieces. Returns the kernel's word, or none where the call is
/// to be made as it is.
pub(crate) fn make(frame: &mut Frame) -> Option<u64> {
    let at_once = hooks::HELD_AT_ONCE.get()?;
    if confined::is_confined() {
        return None;
    }
    match frame.saved[0] as u32 {
        raw::__NR_read
        | raw::__NR_write
        | raw::__NR_pread64
        | raw::__NR_pwrite64
        | raw::__NR_recvfrom
        | raw::__NR_sendto => {
            let piece = Some(at_once()).filter(|piece| frame.saved[LENGTH] > *piece)?;
            if inside::is_on() && !pins::are_managed(frame.saved[LENGTH - 1], frame.saved[LENGTH]) {
                return None;
            }
            if is_closed(frame.saved[1]) {
                return Some(Errno(errno::EBADF as u16).word());
            }
            let rest = rest_of(frame)?;
            Some(make_all(frame, rest, piece))
        }
        raw::__NR_readv | raw::__NR_writev => make_vector(frame, at_once),
        raw::__NR_preadv | raw::__NR_pwritev if inside::is_on() => make_vector(frame, at_once),
        _ => None,
    }
}

/// Makes the pieces up to the first that is not complete.
fn make_all(frame: &mut Frame, rest: Rest, piece: u64) -> u64 {
    let asked = frame.saved;
    let result = match rest {
        Rest::Peek => peek(frame, piece),
        _ => transfer(frame, rest, piece, 0),
    };
    frame.saved = asked;
    result.unwrap_or_else(Errno::word)
}

/// Makes the pieces of the call in `frame.saved`, which they change. `before` bytes were done by
/// the same call of the program's already.
fn transfer(frame: &mut Frame, rest: Rest, piece: u64, before: u64) -> Result<u64, Errno> {
    let asked = frame.saved;
    let has_offset = matches!(asked[0] as u32, raw::__NR_pread64 | raw::__NR_pwrite64);
    let mut done = 0;
    loop {
        // What the piece holds is found by the words of the frame.
        frame.saved[LENGTH - 1] = asked[LENGTH - 1].wrapping_add(done);
        frame.saved[LENGTH] = (asked[LENGTH] - done).min(piece);
        if has_offset {
            frame.saved[FOURTH] = asked[FOURTH].wrapping_add(done);
        }
        let is_first = before + done == 0;
        match make_held(frame, if is_first { Rest::Alike } else { rest }) {
            Ok(bytes) => {
                done += bytes;
                if bytes < frame.saved[LENGTH] || done == asked[LENGTH] {
                    return Ok(done);
                }
            }
            Err(_) if done > 0 => return Ok(done),
            Err(errno) => return Err(errno),
        }
    }
}

/// Looks at what waits in a stream: no more is held than waits, or than is held at once.
fn peek(frame: &mut Frame, piece: u64) -> Result<u64, Errno> {
    let (asked, descriptor) = (frame.saved[LENGTH], frame.saved[1]);
    loop {
        let bytes = asked.min(piece.max(waiting(descriptor)));
        frame.saved[LENGTH] = bytes;
        let result = make_held(frame, Rest::Alike);
        // More may have come.
        if result != Ok(bytes) || bytes == asked || waiting(descriptor) <= bytes {
            return result;
        }
    }
}

/// Whether a socket has an error, which the program is to find by its next call.
fn has_error(descriptor: u64) -> bool {
    const POLLERR: u64 = 8;
    // The descriptor, and the events in the upper half: none is asked for, and errors always come.
    let mut asked = descriptor as u32 as u64;
    // SAFETY: reads and writes one element.
    let _ = unsafe { call(raw::__NR_poll, [&raw mut asked as u64, 1, 0, 0, 0, 0]) };
    asked >> 48 & POLLERR != 0
}

/// Bytes that wait in a socket.
fn waiting(descriptor: u64) -> u64 {
    let mut waits = 0u32;
    // SAFETY: writes one word.
    let _ = unsafe { call(raw::__NR_ioctl, [descriptor, FIONREAD, &raw mut waits as u64, 0, 0, 0]) };
    waits.into()
}

/// Makes the call in `frame.saved`, which is over a part of the program's buffer, and holds that.
fn make_held(frame: &mut Frame, rest: Rest) -> Result<u64, Errno> {
    pins::hold(frame);
    // SAFETY: the program's call.
    let result = unsafe { make_piece(&frame.saved, rest) };
    pins::release(frame);
    result
}

/// # Safety
/// That of the call.
unsafe fn make_piece(words: &[u64; 7], rest: Rest) -> Result<u64, Errno> {
    let [number, descriptor, start, bytes, fourth, ..] = *words;
    let is_read = number as u32 == raw::__NR_read;
    // SAFETY: by the caller's contract.
    unsafe {
        match rest {
            Rest::Alike | Rest::Peek => {
                let [_, arguments @ ..] = *words;
                call(number as u32, arguments)
            }
            Rest::OfSocket if has_error(descriptor) => Ok(0),
            Rest::OfSocket => {
                let flags = if is_read { 0 } else { fourth } | net::MSG_DONTWAIT as u64;
                call(raw::__NR_recvfrom, [descriptor, start, bytes, flags, 0, 0])
            }
            Rest::OfPipe => {
                let vector = [start, bytes];
                let here = u64::MAX;
                call(raw::__NR_preadv2, [descriptor, vector.as_ptr() as u64, 1, here, here, RWF_NOWAIT])
            }
        }
    }
}

/// A vector over more than is held at once goes element by element. Inside a program the first
/// elements of a longer one do, and the count says that it was not all.
fn make_vector(frame: &mut Frame, at_once: fn() -> u64) -> Option<u64> {
    const SOME: usize = 16;
    let [number, descriptor, vector, count, offset, ..] = frame.saved;
    if count == 0 || count > SOME as u64 && !inside::is_on() || count > raw::UIO_MAXIOV as u64 {
        return None;
    }
    let here = &raw const *frame as u64;
    // Those from `first` on that are read at once, and the bytes of all before and with them.
    let read = |elements: &mut [[u64; 2]; SOME], first: u64, before: u64| {
        let some = (count - first).min(SOME as u64);
        let some = elements.get_mut(..some as usize)?;
        let readable = pins::read_words(vector.wrapping_add(first * 16), some.as_flattened_mut(), here);
        let total = some.iter().fold(before, |total, [_, bytes]| total.saturating_add(*bytes));
        (readable == crate::kernel::Readable::Yes).then_some(total)
    };
    let mut elements = [[0u64; 2]; SOME];
    let mut total = read(&mut elements, 0, 0)?;
    for first in (SOME as u64..count).step_by(SOME) {
        total = read(&mut [[0; 2]; SOME], first, total)?;
    }
    let used = elements.get(..SOME.min(count as usize))?;
    let piece = Some(at_once()).filter(|piece| total > *piece && total <= i64::MAX as u64)?;
    if inside::is_on() && !used.iter().any(|[start, bytes]| pins::are_managed(*start, *bytes)) {
        return None;
    }
    if is_closed(descriptor) {
        return Some(Errno(errno::EBADF as u16).word());
    }
    let asked = frame.saved;
    let scalar = match number as u32 {
        raw::__NR_readv => raw::__NR_read,
        raw::__NR_preadv => raw::__NR_pread64,
        raw::__NR_pwritev => raw::__NR_pwrite64,
        _ => raw::__NR_write,
    };
    frame.saved = [scalar as u64, descriptor, 0, total, 0, 0, 0];
    let Some(rest) = rest_of(frame) else {
        frame.saved = asked;
        return None;
    };
    let mut done = 0;
    let mut result = Ok(0);
    for [start, bytes] in used.iter().filter(|[_, bytes]| *bytes > 0) {
        frame.saved = [scalar as u64, descriptor, *start, *bytes, offset.wrapping_add(done), 0, 0];
        result = transfer(frame, rest, piece, done);
        done += result.unwrap_or(0);
        if result != Ok(*bytes) {
            break;
        }
    }
    frame.saved = asked;
    if done > 0 { Some(done) } else { Some(result.unwrap_or_else(Errno::word)) }
}

/// Whether no file is behind a descriptor: the kernel says so before it looks at the buffer.
fn is_closed(descriptor: u64) -> bool {
    // SAFETY: takes numbers only.
    unsafe { call(raw::__NR_fcntl, [descriptor, raw::F_GETFD as u64, 0, 0, 0, 0]) }.is_err()
}

/// How further pieces are made; none where the call stays whole.
fn rest_of(frame: &Frame) -> Option<Rest> {
    let [number, descriptor, ..] = frame.saved;
    let number = number as u32;
    if matches!(number, raw::__NR_recvfrom | raw::__NR_sendto) {
        let flags = frame.saved[FOURTH] as u32;
        return match number {
            _ if flags & WHOLE != 0 || !is_stream(descriptor) => None,
            raw::__NR_recvfrom if flags & net::MSG_PEEK != 0 => Some(Rest::Peek),
            raw::__NR_recvfrom if flags & net::MSG_WAITALL == 0 => Some(Rest::OfSocket),
            _ => Some(Rest::Alike),
        };
    }
    let status = status_of(descriptor);
    let reads = number == raw::__NR_read;
    match status.st_mode & S_IFMT {
        // A record that is added to a file is added at once, unless it is too long for that.
        raw::S_IFREG
            if !reads
                && number == raw::__NR_write
                && frame.saved[LENGTH] <= inside::held_most()
                && adds(descriptor) =>
        {
            None
        }
        raw::S_IFREG | raw::S_IFBLK => Some(Rest::Alike),
        raw::S_IFCHR if status.st_rdev >> 8 == MEMORY_DEVICES => Some(Rest::Alike),
        raw::S_IFIFO if reads => Some(Rest::OfPipe),
        raw::S_IFSOCK if is_stream(descriptor) && reads => Some(Rest::OfSocket),
        raw::S_IFIFO => Some(Rest::Alike),
        raw::S_IFSOCK if is_stream(descriptor) => Some(Rest::Alike),
        // A terminal's line, a device's record.
        _ => None,
    }
}

/// Whether a descriptor adds to its file (O_APPEND).
fn adds(descriptor: u64) -> bool {
    // SAFETY: takes numbers only.
    let flags = unsafe { call(raw::__NR_fcntl, [descriptor, raw::F_GETFL as u64, 0, 0, 0, 0]) };
    flags.is_ok_and(|flags| flags & raw::O_APPEND as u64 != 0)
}

/// What is known of the file behind a descriptor; all-zero where there is none.
fn status_of(descriptor: u64) -> raw::stat {
    // SAFETY: all-zero is a value of it.
    let mut status: raw::stat = unsafe { core::mem::zeroed() };
    // SAFETY: writes one structure.
    let _ = unsafe { call(raw::__NR_fstat, [descriptor, &raw mut status as u64, 0, 0, 0, 0]) };
    status
}

fn is_stream(descriptor: u64) -> bool {
    let (mut kind, mut bytes) = (0u32, size_of::<u32>() as u32);
    let place = [&raw mut kind as u64, &raw mut bytes as u64];
    let [level, option] = [net::SOL_SOCKET as u64, net::SO_TYPE as u64];
    // SAFETY: writes two words.
    let known = unsafe { call(raw::__NR_getsockopt, [descriptor, level, option, place[0], place[1], 0]) };
    known.is_ok() && kind == net::SOCK_STREAM
}
