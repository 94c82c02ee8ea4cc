//! The object that this code is a part of, as it is mapped: the agent in a managed program.

use crate::kernel::ranges::Range;
use crate::units::PAGE;

/// The kernel's `Elf64_Ehdr`.
#[repr(C)]
struct Header {
    ident: [u8; 16],
    kind: u16,
    machine: u16,
    version: u32,
    entry: u64,
    segments_at: u64,
    sections_at: u64,
    flags: u32,
    header_bytes: u16,
    segment_bytes: u16,
    segments: u16,
}

/// The kernel's `Elf64_Phdr`.
#[repr(C)]
struct Segment {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    physical: u64,
    file_bytes: u64,
    bytes: u64,
    align: u64,
}

const LOADED: u32 = 1;

unsafe extern "C" {
    /// The first byte of the object, by the linker.
    #[link_name = "__ehdr_start"]
    static HEADER: Header;
}

/// The addresses from the first to the last page of the object.
pub(crate) fn range() -> Range {
    // SAFETY: the linker puts the symbol at the header of the object, which is mapped with its
    // table of segments as long as the object is.
    let (start, segments) = unsafe {
        let start = &raw const HEADER;
        let table = start.cast::<u8>().add(HEADER.segments_at as usize).cast::<Segment>();
        (start as usize, core::slice::from_raw_parts(table, HEADER.segments.into()))
    };
    let loaded = segments.iter().filter(|segment| segment.kind == LOADED);
    // Addresses in a program that is linked to a fixed place count from zero, as others do from the
    // first segment.
    let first = loaded.clone().map(|segment| segment.address as usize & !(PAGE - 1)).min().unwrap_or(0);
    let last = loaded.map(|segment| (segment.address + segment.bytes) as usize).max().unwrap_or(0);
    Range { start, end: start + (last - first).next_multiple_of(PAGE) }
}

#[cfg(test)]
mod tests;
