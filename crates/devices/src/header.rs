//! The header of a prepared swap file or block device. Its first page proves that folioswap
//! prepared it, so that nothing else is ever overwritten.
//!
//! Numbers are little-endian. The data begin at 2 MiB, so that clusters lie on multiples of their
//! size; the bytes between header and data stay zero.
//!
//! | Bytes | Content |
//! |---|---|
//! | 0-7 | magic `folioswp` |
//! | 8-11 | version, 1 |
//! | 12-15 | page size, 4096 |
//! | 16-23 | size of the file or device in bytes, including the header's 2 MiB |
//! | 24-39 | UUID |
//! | 40-4087 | zero |
//! | 4088-4095 | XXH3-64 over the bytes before |

use std::fmt;

use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64;

use crate::page::{PAGE_SIZE, Page};

const MAGIC: &[u8; 8] = b"folioswp";
const VERSION: u32 = 1;
const CHECKSUM_AT: usize = PAGE_SIZE - 8;
/// Offset of the data in bytes: the size of a cluster.
pub const DATA_START: u64 = 2 << 20;
/// The smallest size that can be prepared: header and one cluster.
pub const SIZE_MIN: u64 = 2 * DATA_START;

/// The contents of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Identifies the file or device, whatever its path.
    pub uuid: Uuid,
    /// Bytes of the file or device when it was prepared, at least [`SIZE_MIN`].
    pub size: u64,
}

/// The reason why a page is no header that this version can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderError {
    /// The page does not begin with the magic, so it is not a header of folioswap.
    Foreign,
    /// The page has the magic but another checksum: it is damaged.
    Damaged,
    /// The header is of a version that this program does not know.
    Version(u32),
    /// The checksum is right but a field is impossible: page size, size, or a non-zero byte where
    /// zeroes belong.
    Impossible,
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str("it has no header of folioswap"),
            Self::Damaged => f.write_str("its header is damaged (wrong checksum)"),
            Self::Version(version) => {
                write!(f, "its header is of version {version}, this program knows {VERSION}")
            }
            Self::Impossible => f.write_str("its header says what is not possible"),
        }
    }
}

impl std::error::Error for HeaderError {}

impl Header {
    /// The first page that holds this header.
    pub fn to_page(&self) -> Page {
        let mut page = [0; PAGE_SIZE];
        page[..8].copy_from_slice(MAGIC);
        page[8..12].copy_from_slice(&VERSION.to_le_bytes());
        page[12..16].copy_from_slice(&(PAGE_SIZE as u32).to_le_bytes());
        page[16..24].copy_from_slice(&self.size.to_le_bytes());
        page[24..40].copy_from_slice(self.uuid.as_bytes());
        let checksum = xxh3_64(&page[..CHECKSUM_AT]);
        page[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        page
    }

    /// Parses a page that [`Header::to_page`] made. Any page may be given; no field is used before
    /// the checksum is verified.
    ///
    /// # Errors
    /// [`HeaderError`].
    pub fn from_page(page: &Page) -> Result<Self, HeaderError> {
        if &page[..8] != MAGIC {
            return Err(HeaderError::Foreign);
        }
        if word(page, CHECKSUM_AT) != xxh3_64(&page[..CHECKSUM_AT]) {
            return Err(HeaderError::Damaged);
        }
        let (version, page_size) = (word(page, 8) as u32, (word(page, 8) >> 32) as u32);
        if version != VERSION {
            return Err(HeaderError::Version(version));
        }
        let size = word(page, 16);
        let rest_is_zero = page[40..CHECKSUM_AT].iter().all(|&byte| byte == 0);
        if page_size as usize != PAGE_SIZE || !(SIZE_MIN..1 << 60).contains(&size) || !rest_is_zero {
            return Err(HeaderError::Impossible);
        }
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&page[24..40]);
        Ok(Header { uuid: Uuid::from_bytes(uuid), size })
    }
}

fn word(page: &Page, at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&page[at..at + 8]);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests;
