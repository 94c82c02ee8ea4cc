//! What a record of version 2 says beyond version 1, in 16 bytes behind the first 16.
//!
//! ```text
//! word 2, little-endian                             word 3
//! 63        32 31      16 15     8 7        0       63                0
//! |   mask    |  group   |  zero  |  cause  |       |      folio      |
//! ```
//! The swap-ins of a trace, in their order, are its frees and retains with cause
//! [`Cause::SwapIn`].

/// Bytes of encoded details.
pub const DETAILS_BYTES: usize = 16;

/// Why slots became free or only cached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Not known, or no matter: allocations, and every record of version 1.
    #[default]
    Unknown,
    /// Their pages came back into memory.
    SwapIn,
    /// Their memory was given up: a process ended, unmapped it, or truncated a file.
    Exit,
    /// The allocator or reclaim took slots back that were only cached.
    Reclaim,
}

impl Cause {
    /// All causes, by their number.
    pub const ALL: [Cause; 4] = [Cause::Unknown, Cause::SwapIn, Cause::Exit, Cause::Reclaim];

    /// The name in the text form.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Unknown => "-",
            Cause::SwapIn => "swap-in",
            Cause::Exit => "exit",
            Cause::Reclaim => "reclaim",
        }
    }
}

/// The details of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Details {
    /// The memory group that was charged; 0: not known.
    pub group: u16,
    /// Devices that the allocation might use, a bit each.
    pub mask: u32,
    /// The folio, as a number that is its own while it lives; 0: not known.
    pub folio: u64,
    /// Why slots became free.
    pub cause: Cause,
}

impl Default for Details {
    /// Nothing known, all devices permitted.
    fn default() -> Self {
        Details { group: 0, mask: u32::MAX, folio: 0, cause: Cause::Unknown }
    }
}

/// Bytes are no details: an unknown cause, or reserved bits are set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadDetails;

impl core::fmt::Display for BadDetails {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("unknown cause, or reserved bits are set")
    }
}

impl core::error::Error for BadDetails {}

impl Details {
    /// Encodes the details.
    pub fn encode(&self) -> [u8; DETAILS_BYTES] {
        let first = u64::from(self.mask) << 32 | u64::from(self.group) << 16 | self.cause as u64;
        (u128::from(first) | u128::from(self.folio) << 64).to_le_bytes()
    }

    /// Decodes details, the opposite of [`encode`](Self::encode).
    ///
    /// # Errors
    /// [`BadDetails`] for bytes that `encode` never makes.
    pub fn decode(bytes: &[u8; DETAILS_BYTES]) -> Result<Details, BadDetails> {
        let value = u128::from_le_bytes(*bytes);
        let first = value as u64;
        // The cause and the reserved byte above it.
        let cause = Cause::ALL.get((first & 0xffff) as usize).ok_or(BadDetails)?;
        Ok(Details {
            group: (first >> 16) as u16,
            mask: (first >> 32) as u32,
            folio: (value >> 64) as u64,
            cause: *cause,
        })
    }
}
