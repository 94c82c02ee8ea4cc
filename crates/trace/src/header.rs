//! The first 64 bytes of a trace.
//!
//! ```text
//!  0  magic "foliotrc"     8  version, u32      12  bytes of the header, u32
//! 16  bytes of a record, u32   20  nanoseconds per tick, u32
//! 24  logical CPUs, u32        28  zero
//! ```
//! All numbers are little-endian.

/// Bytes of the encoded header.
pub const HEADER_BYTES: usize = 64;
/// The version that this crate writes, and the only one that it reads.
pub const VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"foliotrc";
const END_OF_FIELDS: usize = 28;

/// The properties shared by all records of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Nanoseconds per tick of [`Record::tick`](crate::Record), at least 1.
    pub tick_ns: u32,
    /// Logical CPUs of the recorded allocator, 1 to [`CPUS_MAX`](crate::CPUS_MAX). Every `cpu` of a
    /// record is below this number.
    pub cpus: u32,
}

/// Why bytes are not the header of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderError {
    /// Fewer than [`HEADER_BYTES`] bytes.
    TooShort,
    /// The magic is another one: the bytes are no trace.
    NotATrace,
    /// A version that this crate does not read.
    Version(u32),
    /// A field has a value that no writer writes.
    Invalid,
}

impl core::fmt::Display for HeaderError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            HeaderError::TooShort => formatter.write_str("too short for a folioswap trace"),
            HeaderError::NotATrace => formatter.write_str("not a folioswap trace (its first bytes differ)"),
            HeaderError::Version(version) => {
                write!(formatter, "a trace of version {version}; this folioswap reads version {VERSION}")
            }
            HeaderError::Invalid => formatter.write_str("the header of the trace is damaged"),
        }
    }
}

impl core::error::Error for HeaderError {}

impl Header {
    fn is_valid(&self) -> bool {
        self.tick_ns >= 1 && (1..=crate::CPUS_MAX).contains(&self.cpus)
    }

    /// Encodes the header; a file begins with these bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        debug_assert!(self.is_valid());
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        let fields = [VERSION, HEADER_BYTES as u32, crate::RECORD_BYTES as u32, self.tick_ns, self.cpus];
        for (place, field) in bytes[8..END_OF_FIELDS].chunks_exact_mut(4).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }

    /// Decodes the first [`HEADER_BYTES`] of `bytes`.
    ///
    /// # Errors
    /// [`HeaderError`].
    pub fn decode(bytes: &[u8]) -> Result<Header, HeaderError> {
        let bytes = bytes.get(..HEADER_BYTES).ok_or(HeaderError::TooShort)?;
        if bytes[..8] != MAGIC {
            return Err(HeaderError::NotATrace);
        }
        let field = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if field(8) != VERSION {
            return Err(HeaderError::Version(field(8)));
        }
        let header = Header { tick_ns: field(20), cpus: field(24) };
        let sizes = (field(12), field(16)) == (HEADER_BYTES as u32, crate::RECORD_BYTES as u32);
        let rest_is_zero = bytes[END_OF_FIELDS..].iter().all(|byte| *byte == 0);
        if sizes && rest_is_zero && header.is_valid() { Ok(header) } else { Err(HeaderError::Invalid) }
    }
}
