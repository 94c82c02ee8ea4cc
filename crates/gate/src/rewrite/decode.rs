//! Lengths of x86-64 instructions, and whether one may be moved to another address.
//!
//! The decoder knows the maps of opcodes (one byte, `0f`, `0f 38`, `0f 3a`, VEX, EVEX) by their
//! lengths alone. It never accepts what a processor would read as an instruction of another
//! length; what it does not know is an error, and the site is left alone.

/// The longest instruction, in bytes.
pub const LONGEST: usize = 15;

/// How an instruction depends on its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It means the same anywhere.
    Plain,
    /// It has an operand relative to its end: 4 bytes at this offset.
    Relative(u8),
    /// `jmp` to this distance from its end.
    Jump(i32),
    /// `jcc` with this condition (0 to 15) to this distance from its end.
    Branch(u8, i32),
    /// `ret`: nothing behind it is reached from here.
    Return,
    /// It must stay: a call, a loop, a system call, or what ends a transaction.
    Fixed,
}

/// One instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Bytes, 1 to 15.
    pub length: usize,
    /// How it depends on its address.
    pub kind: Kind,
}

/// Why bytes were not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obscure {
    /// There are too few bytes.
    Short,
    /// The instruction is invalid in 64-bit mode, or unknown here.
    Unknown,
}

/// Immediate operands of an opcode.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Immediate {
    None,
    Byte,
    Word,
    /// 4 bytes, or 2 with the prefix `66`.
    Long,
    /// 8 bytes with REX.W, else as `Long`.
    Full,
    /// 8 bytes, or 4 with the prefix `67`.
    Offset,
    /// A word and a byte: `enter`.
    Enter,
}

/// What an opcode is followed by.
#[derive(Clone, Copy)]
struct Shape {
    modrm: bool,
    immediate: Immediate,
}

const fn shape(modrm: bool, immediate: Immediate) -> Result<Shape, Obscure> {
    Ok(Shape { modrm, immediate })
}

/// Bytes that are read one after the other.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn byte(&mut self) -> Result<u8, Obscure> {
        let byte = self.peek()?;
        self.at += 1;
        Ok(byte)
    }

    fn peek(&self) -> Result<u8, Obscure> {
        self.bytes.get(self.at).copied().ok_or(Obscure::Short)
    }

    fn skip(&mut self, count: usize) -> Result<(), Obscure> {
        self.at += count;
        if self.at <= self.bytes.len() { Ok(()) } else { Err(Obscure::Short) }
    }

    /// The signed number of `width` bytes that ends here.
    fn number_before(&self, width: usize) -> i32 {
        let mut value = 0u32;
        for index in (0..width).rev() {
            let byte = self.bytes.get(self.at.wrapping_sub(width) + index).copied().unwrap_or(0);
            value = value << 8 | byte as u32;
        }
        if width == 1 { value as u8 as i8 as i32 } else { value as i32 }
    }
}

#[derive(Clone, Copy, Default)]
struct Prefixes {
    operand: bool,
    address: bool,
    repeat: bool,
    lock: bool,
    rex: u8,
}

/// Decodes the instruction at the start of `bytes`.
///
/// # Errors
/// [`Obscure`]: the bytes are no instruction that this decoder knows.
pub fn decode(bytes: &[u8]) -> Result<Instruction, Obscure> {
    let cut = bytes.get(..LONGEST).unwrap_or(bytes);
    let mut reader = Reader { bytes: cut, at: 0 };
    let prefixes = prefixes(&mut reader)?;
    let opcode = reader.byte()?;
    match opcode {
        0x0f => two_bytes(reader, prefixes),
        0xc4 | 0xc5 | 0x62 => vector(reader, prefixes, opcode),
        _ => one_byte(reader, prefixes, opcode),
    }
}

fn prefixes(reader: &mut Reader<'_>) -> Result<Prefixes, Obscure> {
    let mut found = Prefixes::default();
    loop {
        match reader.peek()? {
            0x66 => found.operand = true,
            0x67 => found.address = true,
            0xf2 | 0xf3 => found.repeat = true,
            0xf0 => found.lock = true,
            0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 => {}
            rex @ 0x40..=0x4f => {
                reader.at += 1;
                // A prefix behind REX makes the processor forget it.
                if matches!(
                    reader.peek()?,
                    0x66 | 0x67 | 0xf2 | 0xf3 | 0xf0 | 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x40..=0x4f
                ) {
                    return Err(Obscure::Unknown);
                }
                found.rex = rex;
                return Ok(found);
            }
            _ => return Ok(found),
        }
        reader.at += 1;
    }
}

fn one_byte(mut reader: Reader<'_>, prefixes: Prefixes, opcode: u8) -> Result<Instruction, Obscure> {
    use Immediate::{Byte, Enter, Full, Long, None, Offset, Word};
    let shape = match opcode {
        0x00..=0x3f => match opcode & 7 {
            0..=3 => shape(true, None),
            4 => shape(false, Byte),
            5 => shape(false, Long),
            _ => Err(Obscure::Unknown),
        },
        0x50..=0x5f | 0x90..=0x99 | 0x9b..=0x9f => shape(false, None),
        0x63 | 0x84..=0x8e => shape(true, None),
        0x68 | 0xa9 => shape(false, Long),
        0x69 | 0x81 | 0xc7 => shape(true, Long),
        0x6a | 0xa8 | 0xb0..=0xb7 | 0xcd => shape(false, Byte),
        0x6b | 0x80 | 0x83 | 0xc0 | 0xc1 | 0xc6 => shape(true, Byte),
        0x6c..=0x6f | 0xa4..=0xa7 | 0xaa..=0xaf => shape(false, None),
        0x70..=0x7f | 0xe0..=0xe3 | 0xeb => shape(false, Byte),
        0x8f if reader.peek()? & 0x38 == 0 => shape(true, None),
        0xa0..=0xa3 => shape(false, Offset),
        0xb8..=0xbf => shape(false, Full),
        0xc2 | 0xca => shape(false, Word),
        0xc3 | 0xc9 | 0xcb | 0xcc | 0xcf => shape(false, None),
        0xc8 => shape(false, Enter),
        0xd0..=0xd3 | 0xd8..=0xdf => shape(true, None),
        0xd7 | 0xec..=0xef | 0xf1 | 0xf4 | 0xf5 | 0xf8..=0xfd => shape(false, None),
        0xe4..=0xe7 => shape(false, Byte),
        // With the prefix 66, processors disagree about the length.
        0xe8 | 0xe9 if !prefixes.operand => shape(false, Long),
        0xf6 if reader.peek()? & 0x30 == 0 => shape(true, Byte),
        0xf7 if reader.peek()? & 0x30 == 0 => shape(true, Long),
        0xf6 | 0xf7 => shape(true, None),
        0xfe if reader.peek()? & 0x30 == 0 => shape(true, None),
        0xff if reader.peek()? & 0x38 != 0x38 => shape(true, None),
        _ => Err(Obscure::Unknown),
    }?;
    let modrm = reader.peek().unwrap_or(0);
    let relative = operands(&mut reader, prefixes, shape)?;
    let kind = match opcode {
        0xeb => Kind::Jump(reader.number_before(1)),
        0xe9 => Kind::Jump(reader.number_before(4)),
        0x70..=0x7f => Kind::Branch(opcode & 15, reader.number_before(1)),
        0xc3 => Kind::Return,
        0xe0..=0xe3 | 0xe8 | 0xca | 0xcb | 0xcc | 0xcd | 0xcf | 0xf1 | 0xf4 => Kind::Fixed,
        0xc2 => Kind::Fixed,
        // xbegin and xabort.
        0xc6 | 0xc7 if modrm & 0x38 == 0x38 => Kind::Fixed,
        // call and jmp through memory or a register: the latter would end the run.
        0xff if (2..=5).contains(&(modrm >> 3 & 7)) => Kind::Fixed,
        _ => relative,
    };
    finish(reader, prefixes, kind)
}

fn two_bytes(mut reader: Reader<'_>, prefixes: Prefixes) -> Result<Instruction, Obscure> {
    use Immediate::{Byte, Long, None};
    let opcode = reader.byte()?;
    let shape = match opcode {
        0x38 => {
            reader.byte()?;
            shape(true, None)
        }
        0x3a => {
            reader.byte()?;
            shape(true, Byte)
        }
        0x05
        | 0x06
        | 0x08
        | 0x09
        | 0x0b
        | 0x30..=0x35
        | 0x37
        | 0x77
        | 0xa0..=0xa2
        | 0xa8..=0xaa
        | 0xc8..=0xcf => shape(false, None),
        0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6 => shape(true, Byte),
        0x80..=0x8f if !prefixes.operand => shape(false, Long),
        0x00..=0x03
        | 0x0d
        | 0x10..=0x1f
        | 0x28..=0x2f
        | 0x40..=0x6f
        | 0x74..=0x76
        | 0x7c..=0x7f
        | 0x90..=0x9f
        | 0xa3
        | 0xa5
        | 0xab
        | 0xad..=0xb9
        | 0xbb..=0xc1
        | 0xc3
        | 0xc7
        | 0xd0..=0xff => shape(true, None),
        _ => Err(Obscure::Unknown),
    }?;
    // extrq and insertq have two bytes more with prefixes that vmread has not.
    if opcode == 0x78 || opcode == 0xb8 && !prefixes.repeat {
        return Err(Obscure::Unknown);
    }
    let relative = operands(&mut reader, prefixes, shape)?;
    let kind = match opcode {
        0x80..=0x8f => Kind::Branch(opcode & 15, reader.number_before(4)),
        0x05 | 0x06 | 0x08 | 0x09 | 0x0b | 0x30..=0x35 | 0x37 | 0xaa | 0x01 | 0xb9 | 0xff => Kind::Fixed,
        _ => relative,
    };
    finish(reader, prefixes, kind)
}

/// VEX and EVEX: all have a ModRM byte but `vzeroupper`; the map tells the immediate.
fn vector(mut reader: Reader<'_>, prefixes: Prefixes, first: u8) -> Result<Instruction, Obscure> {
    use Immediate::{Byte, None};
    if prefixes.rex != 0 || prefixes.operand || prefixes.repeat || prefixes.lock {
        return Err(Obscure::Unknown);
    }
    let byte = reader.byte()?;
    let map = match first {
        0xc5 => 1,
        0xc4 => {
            reader.byte()?;
            byte & 0x1f
        }
        _ => {
            reader.skip(2)?;
            if byte & 0x08 != 0 {
                return Err(Obscure::Unknown);
            }
            byte & 7
        }
    };
    let opcode = reader.byte()?;
    let shape = match map {
        1 if opcode == 0x77 && first != 0x62 => shape(false, None),
        1 if matches!(opcode, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6) => shape(true, Byte),
        1 | 2 => shape(true, None),
        3 => shape(true, Byte),
        5 | 6 if first == 0x62 => shape(true, None),
        _ => Err(Obscure::Unknown),
    }?;
    let relative = operands(&mut reader, prefixes, shape)?;
    finish(reader, prefixes, relative)
}

/// Reads ModRM, SIB, displacement and immediate.
fn operands(reader: &mut Reader<'_>, prefixes: Prefixes, shape: Shape) -> Result<Kind, Obscure> {
    let mut kind = Kind::Plain;
    if shape.modrm {
        let modrm = reader.byte()?;
        let (form, base) = (modrm >> 6, modrm & 7);
        if form != 3 {
            let mut displacement = [0, 1, 4, 0][form as usize & 3];
            if base == 4 {
                let sib = reader.byte()?;
                if form == 0 && sib & 7 == 5 {
                    displacement = 4;
                }
            } else if form == 0 && base == 5 {
                // Relative to the low half of the program counter: nobody writes that.
                if prefixes.address {
                    return Err(Obscure::Unknown);
                }
                displacement = 4;
                kind = Kind::Relative(reader.at as u8);
            }
            reader.skip(displacement)?;
        }
    }
    let long = if prefixes.operand && prefixes.rex & 8 == 0 { 2 } else { 4 };
    reader.skip(match shape.immediate {
        Immediate::None => 0,
        Immediate::Byte => 1,
        Immediate::Word => 2,
        Immediate::Long => long,
        Immediate::Full if prefixes.rex & 8 != 0 => 8,
        Immediate::Full => long,
        Immediate::Offset if prefixes.address => 4,
        Immediate::Offset => 8,
        Immediate::Enter => 3,
    })?;
    Ok(kind)
}

fn finish(reader: Reader<'_>, prefixes: Prefixes, kind: Kind) -> Result<Instruction, Obscure> {
    let branches = matches!(kind, Kind::Jump(_) | Kind::Branch(..) | Kind::Return);
    // A prefix changes a branch (bnd, or 16 bits on one vendor's processors): leave it.
    let kind = if branches && (prefixes.operand || prefixes.address) { Kind::Fixed } else { kind };
    Ok(Instruction { length: reader.at, kind })
}
