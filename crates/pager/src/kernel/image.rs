//! The object that this code is a part of, as it is mapped: the agent in a managed program.

use crate::kernel::ranges::Range;
use crate::units::PAGE;
use linux_raw_sys::elf::{Elf_Ehdr, Elf_Phdr, PF_R, PF_X, PT_LOAD};

unsafe extern "C" {
    /// The first byte of the object, by the linker.
    #[link_name = "__ehdr_start"]
    static HEADER: Elf_Ehdr;
}

/// The addresses from the first to the last page of the object.
pub fn range() -> Range {
    spanned(PF_R)
}

/// The addresses from the first to the last page of the object's code.
pub fn text() -> Range {
    spanned(PF_X)
}

/// The addresses from the first to the last page of the segments with this permission.
fn spanned(permission: u32) -> Range {
    // SAFETY: the linker puts the symbol at the header of the object, which is mapped with its
    // table of segments as long as the object is.
    let (start, segments) = unsafe {
        let start = &raw const HEADER;
        let table = start.cast::<u8>().add(HEADER.e_phoff).cast::<Elf_Phdr>();
        (start as usize, core::slice::from_raw_parts(table, HEADER.e_phnum.into()))
    };
    let loaded = segments.iter().filter(|segment| segment.p_type == PT_LOAD);
    let address = |segment: &Elf_Phdr| segment.p_vaddr & !(PAGE - 1);
    // The addresses of a program that is linked to a fixed place do not begin at zero.
    let base = loaded.clone().map(address).min().unwrap_or(0);
    let wanted = loaded.filter(|segment| segment.p_flags & permission != 0);
    let first = wanted.clone().map(address).min().unwrap_or(base);
    let last = wanted.map(|segment| segment.p_vaddr + segment.p_memsz).max().unwrap_or(base);
    Range { start: start + first - base, end: start + (last - base).next_multiple_of(PAGE) }
}

#[cfg(test)]
mod tests;
