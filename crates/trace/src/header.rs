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
/// The version of a trace of plain records.
pub const VERSION: u32 = 1;
/// The version of a trace whose records have [`Details`](crate::Details) behind them.
pub const VERSION_DETAILED: u32 = 2;

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

/// What follows the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Records of 16 bytes (version 1).
    Plain,
    /// Records of 16 bytes, each with its details of 16 bytes (version 2).
    Detailed,
}

impl Layout {
    /// The version that the header states.
    pub const fn version(self) -> u32 {
        match self {
            Layout::Plain => VERSION,
            Layout::Detailed => VERSION_DETAILED,
        }
    }

    /// Bytes of a record, its details included.
    pub const fn record_bytes(self) -> usize {
        match self {
            Layout::Plain => crate::RECORD_BYTES,
            Layout::Detailed => crate::RECORD_BYTES + crate::DETAILS_BYTES,
        }
    }
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
                write!(
                    formatter,
                    "a trace of version {version}; this folioswap reads versions {VERSION} and {VERSION_DETAILED}"
                )
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

    /// Encodes the header of a trace of plain records; a file begins with these bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        self.encode_as(Layout::Plain)
    }

    /// Encodes the header of a trace of this layout.
    pub fn encode_as(&self, layout: Layout) -> [u8; HEADER_BYTES] {
        debug_assert!(self.is_valid());
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        let record_bytes = layout.record_bytes() as u32;
        let fields = [layout.version(), HEADER_BYTES as u32, record_bytes, self.tick_ns, self.cpus];
        for (place, field) in bytes[8..END_OF_FIELDS].chunks_exact_mut(4).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }

    /// Decodes the first [`HEADER_BYTES`] of a trace of plain records.
    ///
    /// # Errors
    /// [`HeaderError`]; a trace of another version too.
    pub fn decode(bytes: &[u8]) -> Result<Header, HeaderError> {
        match layout(bytes)? {
            Layout::Plain => decode_fields(bytes, Layout::Plain),
            other => Err(HeaderError::Version(other.version())),
        }
    }

    /// Decodes the first [`HEADER_BYTES`] of a trace of any version, and says which layout follows.
    ///
    /// # Errors
    /// [`HeaderError`].
    pub fn decode_any(bytes: &[u8]) -> Result<(Header, Layout), HeaderError> {
        let layout = layout(bytes)?;
        Ok((decode_fields(bytes, layout)?, layout))
    }
}

fn field(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The layout that a header states.
fn layout(bytes: &[u8]) -> Result<Layout, HeaderError> {
    let bytes = bytes.get(..HEADER_BYTES).ok_or(HeaderError::TooShort)?;
    if bytes[..8] != MAGIC {
        return Err(HeaderError::NotATrace);
    }
    match field(bytes, 8) {
        VERSION => Ok(Layout::Plain),
        VERSION_DETAILED => Ok(Layout::Detailed),
        version => Err(HeaderError::Version(version)),
    }
}

/// Context: [`layout`] has accepted the bytes.
fn decode_fields(bytes: &[u8], layout: Layout) -> Result<Header, HeaderError> {
    let header = Header { tick_ns: field(bytes, 20), cpus: field(bytes, 24) };
    let sizes = (field(bytes, 12), field(bytes, 16)) == (HEADER_BYTES as u32, layout.record_bytes() as u32);
    let rest_is_zero = bytes[END_OF_FIELDS..HEADER_BYTES].iter().all(|byte| *byte == 0);
    if sizes && rest_is_zero && header.is_valid() { Ok(header) } else { Err(HeaderError::Invalid) }
}
