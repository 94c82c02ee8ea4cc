//! The agent as it is mapped into a program: its segments, and its relocations.
//!
//! The agent needs little of a dynamic linker: words that have its own addresses, and those of a
//! few functions of the C library, which are zero here, since what is injected calls none.

use super::{NotInjected, tracee::Calls};
use folioswap_group::units::PAGE_SIZE;
use object::{
    Object, ObjectSegment, ObjectSymbol, RelocationFlags, RelocationTarget, SegmentFlags, elf,
    read::elf::ElfFile64,
};
use rustix::io::Errno;
use std::ffi::CStr;

const PAGE: u64 = PAGE_SIZE as u64;
/// The agent's function in which an injected program begins.
const START: &str = "folioswap_injected";

/// A segment, by addresses from the base on.
struct Segment {
    address: u64,
    bytes: u64,
    offset: u64,
    protection: u64,
    /// What is in it at first, where it is writable: the kernel then has anonymous memory of it.
    content: Option<Vec<u8>>,
}

/// A word of a writable segment that depends on the base.
struct Word {
    address: u64,
    /// What is added to the base.
    addend: u64,
}

/// The agent.
pub(super) struct AgentImage {
    /// All addresses are below this.
    span: u64,
    segments: Vec<Segment>,
    words: Vec<Word>,
    start: u64,
    /// Device and number of the file.
    identity: (u64, u64),
}

/// Why a file is no agent that can be injected.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoAgent {
    /// It is no object of this processor's.
    #[error("the agent cannot be understood: {0}")]
    Malformed(#[from] object::Error),
    /// It has a relocation that nobody knows.
    #[error("the agent has a relocation of type {0}")]
    Relocation(u32),
    /// It has no start.
    #[error("the agent has no {START}")]
    NoStart,
}

impl AgentImage {
    /// Reads the agent's file, which is known by its device and number.
    pub(super) fn parse(file: &[u8], identity: (u64, u64)) -> Result<Self, NoAgent> {
        let object = ElfFile64::<object::Endianness>::parse(file)?;
        let mut segments = Vec::new();
        for segment in object.segments() {
            let SegmentFlags::Elf { p_flags } = segment.flags() else { continue };
            let content = (p_flags & elf::PF_W != 0).then(|| segment.data()).transpose()?;
            segments.push(Segment {
                address: segment.address(),
                bytes: segment.size(),
                offset: segment.file_range().0,
                protection: protection(p_flags),
                content: content.map(<[u8]>::to_vec),
            });
        }
        let symbols = object.dynamic_symbol_table();
        let address_of = |index| {
            let symbol = symbols
                .as_ref()
                .and_then(|table| object::ObjectSymbolTable::symbol_by_index(table, index).ok());
            symbol.filter(|symbol| !symbol.is_undefined()).map(|symbol| symbol.address())
        };
        let mut words = Vec::new();
        for (address, relocation) in object.dynamic_relocations().into_iter().flatten() {
            let RelocationFlags::Elf { r_type } = relocation.flags() else { continue };
            let addend = relocation.addend() as u64;
            let value = match (r_type, relocation.target()) {
                (elf::R_X86_64_RELATIVE, _) => Some(addend),
                (
                    elf::R_X86_64_64 | elf::R_X86_64_GLOB_DAT | elf::R_X86_64_JUMP_SLOT,
                    RelocationTarget::Symbol(index),
                ) => address_of(index).map(|address| address.wrapping_add(addend)),
                _ => return Err(NoAgent::Relocation(r_type)),
            };
            // The others are zero, as weak references are that nobody defines.
            words.extend(value.map(|addend| Word { address, addend }));
        }
        let start = object.dynamic_symbols().find(|symbol| symbol.name() == Ok(START));
        let start = start.ok_or(NoAgent::NoStart)?.address();
        let span = segments.iter().map(|segment| segment.address + segment.bytes).max().unwrap_or(0);
        Ok(AgentImage { span: span.next_multiple_of(PAGE), segments, words, start, identity })
    }

    /// Has a program map the agent, and relocates it; returns where it starts.
    pub(super) fn load(&self, calls: &mut Calls<'_>, path: &CStr) -> Result<u64, NotInjected> {
        let file = calls.open(path)?;
        if calls.identity_of(file) != Some(self.identity) {
            // The path means another file to it.
            return Err(NotInjected::by("opening the agent")(Errno::XDEV));
        }
        let base = calls.reserve(self.span)?;
        for segment in &self.segments {
            let first = segment.address & !(PAGE - 1);
            let bytes = (segment.address + segment.bytes).next_multiple_of(PAGE) - first;
            let Some(content) = &segment.content else {
                let offset = segment.offset & !(PAGE - 1);
                calls.map(base + first, bytes, segment.protection, Some((file, offset)))?;
                continue;
            };
            calls.map(base + first, bytes, segment.protection, None)?;
            let mut content = content.clone();
            for word in &self.words {
                let at = word.address.wrapping_sub(segment.address) as usize;
                if let Some(place) = content.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<8>) {
                    *place = base.wrapping_add(word.addend).to_ne_bytes();
                }
            }
            calls.write(base + segment.address, &content)?;
        }
        calls.close(file)?;
        Ok(base + self.start)
    }
}

fn protection(flags: u32) -> u64 {
    let bits = [(elf::PF_R, libc::PROT_READ), (elf::PF_W, libc::PROT_WRITE), (elf::PF_X, libc::PROT_EXEC)];
    bits.iter().filter(|(flag, _)| flags & flag != 0).fold(0, |all, (_, bit)| all | *bit as u64)
}
