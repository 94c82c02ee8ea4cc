//! As much of the ELF format as is needed to tell whether the agent can be preloaded into a
//! program.

use std::{fs::File, io, os::unix::fs::FileExt};

const PT_INTERP: u32 = 3;
const EM_X86_64: u16 = 62;
const EM_AARCH64: u16 = 183;
/// The machine of the programs that this one's agent can be loaded into.
const OWN_MACHINE: u16 = if cfg!(target_arch = "aarch64") { EM_AARCH64 } else { EM_X86_64 };
const CLASS_64: u8 = 2;
/// The most program headers that are looked at; real programs have about a dozen.
const HEADERS_MAX: u64 = 256;

/// The kind of file that a program is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Image {
    /// A program that a dynamic linker loads.
    Dynamic {
        /// The path of the linker.
        interpreter: String,
    },
    /// A program without a dynamic linker: nothing can be preloaded into it.
    Static,
    /// A program for another processor or word size.
    Foreign {
        /// A description of that machine.
        machine: String,
    },
    /// A script: `#!` and an interpreter.
    Script {
        /// The path of the interpreter.
        interpreter: String,
    },
    /// Any other file: the shell runs it.
    Other,
}

/// Finds out the kind of a file.
///
/// # Errors
/// When the file cannot be read.
pub fn inspect(file: &File) -> io::Result<Image> {
    let mut head = [0_u8; 256];
    let length = read_up_to(file, &mut head, 0)?;
    let head = &head[..length];
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let text = String::from_utf8_lossy(line);
        return Ok(text
            .split_whitespace()
            .next()
            .map_or(Image::Other, |word| Image::Script { interpreter: word.to_owned() }));
    }
    if head.len() < 64 || !head.starts_with(b"\x7fELF") {
        return Ok(Image::Other);
    }
    let half = |offset: usize| u16::from_le_bytes([head[offset], head[offset + 1]]);
    let machine = half(18);
    if head[4] != CLASS_64 || machine != OWN_MACHINE {
        let class = if head[4] == CLASS_64 { "64-bit" } else { "32-bit" };
        return Ok(Image::Foreign { machine: format!("{class}, {}", machine_name(machine)) });
    }
    let table = u64::from_le_bytes(head[32..40].try_into().expect("8 bytes"));
    let (size, count) = (u64::from(half(54)), u64::from(half(56)));
    for index in 0..count.min(HEADERS_MAX) {
        let mut header = [0_u8; 56];
        if read_up_to(file, &mut header, table.saturating_add(index * size))? < header.len() {
            break;
        }
        let word =
            |offset: usize| u64::from_le_bytes(header[offset..offset + 8].try_into().expect("8 bytes"));
        if u32::from_le_bytes(header[..4].try_into().expect("4 bytes")) == PT_INTERP {
            let mut path = vec![0_u8; word(32).min(4096) as usize];
            let length = read_up_to(file, &mut path, word(8))?;
            let path = path[..length].split(|&byte| byte == 0).next().unwrap_or_default();
            return Ok(Image::Dynamic { interpreter: String::from_utf8_lossy(path).into_owned() });
        }
    }
    Ok(Image::Static)
}

fn machine_name(machine: u16) -> String {
    match machine {
        3 => "x86".to_owned(),
        40 => "ARM".to_owned(),
        EM_X86_64 if OWN_MACHINE == EM_X86_64 => "x86-64 (x32)".to_owned(),
        EM_X86_64 => "x86-64".to_owned(),
        EM_AARCH64 => "AArch64".to_owned(),
        243 => "RISC-V".to_owned(),
        other => format!("ELF machine {other}"),
    }
}

fn read_up_to(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset.saturating_add(done as u64)) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests;
