//! `/proc/self/maps`, read without allocation, and the choice of mappings that can be managed.

use crate::kernel::image;
use crate::kernel::ranges::Range;
use crate::kernel::window;
use rustix::fd::BorrowedFd;

/// One line of the file: a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: usize,
    /// Address after the last.
    pub end: usize,
    /// The meaning of the mapping for the pager.
    pub kind: MappingKind,
}

/// The meaning of a mapping for the pager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappingKind {
    /// Private, anonymous, readable and writable, not executable: it can be managed.
    Anonymous,
    /// Private, anonymous, without access: a future heap of an allocator, or a guard.
    Reserved,
    /// Backed by a file or shared memory.
    File,
    /// Anything else: stacks, special areas, other protections.
    Other,
}

/// Tells which mappings of a list can be managed. It must be asked about every one, in ascending
/// order.
#[derive(Clone, Copy, Debug)]
pub struct MappingFilter {
    previous: Mapping,
    /// The object that the pager is a part of. With the gate its data are several mappings, and
    /// large.
    own: Range,
}

/// Anonymous memory right behind a file's mapping is that file's data without initial value. It is
/// managed only when it is large, as in programs with huge static arrays, since small ones may be
/// the pager's own or the C library's.
const DATA_BYTES_MIN: usize = 16 << 20;

/// Reserved memory of such sizes that ends at a multiple of the largest is managed before it may be
/// touched. The C library's allocator reserves each heap of a thread in this way, and makes it
/// accessible step by step, by system calls of its own that no interposition sees. Guards are
/// smaller, stacks lie elsewhere; larger reservations are mapped anew step by step, as far as is
/// known.
const RESERVED_BYTES: core::ops::RangeInclusive<usize> = 1 << 20..=HEAP_BYTES;

const HEAP_BYTES: usize = 64 << 20;

impl MappingFilter {
    /// Creates the filter in its state before the first mapping.
    pub fn new() -> Self {
        MappingFilter {
            previous: Mapping { start: 0, end: 0, kind: MappingKind::Other },
            own: image::range(),
        }
    }

    /// Whether this mapping can be managed.
    pub fn can_be_managed(&mut self, mapping: Mapping) -> bool {
        let data = self.previous.kind == MappingKind::File && self.previous.end == mapping.start;
        self.previous = mapping;
        if mapping.start < self.own.end && self.own.start < mapping.end || window::has(mapping.start) {
            return false;
        }
        let bytes = mapping.end - mapping.start;
        match mapping.kind {
            MappingKind::Anonymous => !data || bytes >= DATA_BYTES_MIN,
            MappingKind::Reserved => {
                !data && RESERVED_BYTES.contains(&bytes) && mapping.end.is_multiple_of(HEAP_BYTES)
            }
            MappingKind::File | MappingKind::Other => false,
        }
    }
}

impl Default for MappingFilter {
    fn default() -> Self {
        Self::new()
    }
}

/// Parses one line (without its newline). Returns `None` if it is not a mapping.
pub fn parse(line: &[u8]) -> Option<Mapping> {
    let (start, rest) = hexadecimal(line)?;
    let (end, rest) = hexadecimal(rest.strip_prefix(b"-")?)?;
    let rest = rest.strip_prefix(b" ")?;
    let permissions = rest.get(..4)?;
    let mut fields = rest.get(5..)?.splitn(4, |&byte| byte == b' ');
    let (_offset, _device, inode) = (fields.next()?, fields.next()?, fields.next()?);
    let path = fields.next().map_or(&b""[..], |path| path.trim_ascii_start());
    let kind = if inode != b"0" {
        MappingKind::File
    } else if permissions == b"rw-p" && (path.is_empty() || path == b"[heap]" || path.starts_with(b"[anon:"))
    {
        MappingKind::Anonymous
    } else if permissions == b"---p" && path.is_empty() {
        MappingKind::Reserved
    } else {
        MappingKind::Other
    };
    Some(Mapping { start, end, kind })
}

fn hexadecimal(text: &[u8]) -> Option<(usize, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    if digits == 0 || digits > 16 {
        return None;
    }
    let value = text[..digits]
        .iter()
        .fold(0usize, |value, &byte| value << 4 | (byte as char).to_digit(16).unwrap_or(0) as usize);
    Some((value, &text[digits..]))
}

/// Reads the complete file through `descriptor` (of `/proc/self/maps`, at any position) and calls
/// `each` for every mapping, in ascending order. The caller supplies the buffer; lines longer than
/// half of it are skipped.
///
/// The kernel hands out one page at a time under its lock, so the list may be a mixture of moments:
/// the operation that uses it must check it by itself.
pub fn read(
    descriptor: BorrowedFd<'_>,
    buffer: &mut [u8],
    mut each: impl FnMut(Mapping),
) -> rustix::io::Result<()> {
    for_lines(descriptor, buffer, |line| {
        if let Some(mapping) = parse(line) {
            each(mapping);
        }
    })
}

/// As [`read`], for `/proc/self/smaps`: calls `each` with the bounds of every mapping that a child
/// of this process does not find, or finds empty (`dc` and `wf` among its VmFlags,
/// proc_pid_smaps(5)). These come from MADV_DONTFORK and MADV_WIPEONFORK, in whatever way they were
/// given, wherever the mapping has moved and however it has grown since. A mapping's flags and
/// bounds are of one moment.
///
/// Cost: the kernel walks the page tables of all mappings, some 20 to 90 ns for each page that is
/// present.
pub fn not_inherited(
    descriptor: BorrowedFd<'_>,
    buffer: &mut [u8],
    mut each: impl FnMut(Range),
) -> rustix::io::Result<()> {
    let mut range = None;
    for_lines(descriptor, buffer, |line| {
        if let Some(flags) = line.strip_prefix(b"VmFlags:") {
            let is_left_out = |flag: &[u8]| flag == b"wf" || flag == b"dc";
            if let Some(range) = range.take()
                && flags.split(u8::is_ascii_whitespace).any(is_left_out)
            {
                each(range);
            }
        } else if let Some(Mapping { start, end, .. }) = parse(line) {
            range = Some(Range { start, end });
        }
    })
}

fn for_lines(
    descriptor: BorrowedFd<'_>,
    buffer: &mut [u8],
    mut each: impl FnMut(&[u8]),
) -> rustix::io::Result<()> {
    rustix::fs::seek(descriptor, rustix::fs::SeekFrom::Start(0))?;
    let mut filled = 0;
    loop {
        let got = rustix::io::read(descriptor, &mut buffer[filled..])?;
        filled += got;
        let mut begin = 0;
        while let Some(length) = buffer[begin..filled].iter().position(|&byte| byte == b'\n') {
            each(&buffer[begin..begin + length]);
            begin += length + 1;
        }
        if got == 0 {
            return Ok(());
        }
        buffer.copy_within(begin..filled, 0);
        filled -= begin;
        if filled > buffer.len() / 2 {
            filled = 0;
        }
    }
}

#[cfg(test)]
mod tests;
