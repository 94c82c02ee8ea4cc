//! Recompression: an idle page is stored again, smaller, with a slower codec (the kernel's zram
//! does the same when its `recompress` is written to).
//!
//! The store only makes the new object. The caller exchanges it for the old one in the location,
//! under the location's LOCK bit, and then frees the other of the two.

use super::class::ClassId;
use super::{StoreError, Zram};
use crate::checksum::Checksum;
use crate::location::{Handle, Owner, StoredLen};
use crate::memory::PageMemory;
use crate::page::Page;
use crate::zstd;

/// Most of the old object's slot that a new object may take, in eighths; a smaller gain is not
/// worth the slower read.
const WORTH_EIGHTHS: usize = 7;

/// The outcome of [`Zram::recompress`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Recompressed {
    /// The page has a second object, of [`Codec::Zstd`](crate::location::Codec::Zstd). The caller
    /// frees one of the two.
    Object {
        /// The object's name.
        handle: Handle,
        /// The object's length.
        len: StoredLen,
        /// Over the object's bytes.
        checksum: Checksum,
    },
    /// Its slot would not be smaller by at least an eighth. Nothing is stored.
    NotWorth,
}

impl<M: PageMemory> Zram<M> {
    /// Stores `page`, of which the store has an object of `len` bytes, again with zstd if its slot
    /// becomes smaller by at least an eighth. The page is not same-filled, because the store has no
    /// objects of such pages. Any number of threads may do so at a time, each with its own encoder.
    /// Cost: about 18 µs at 2:1, under no lock.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; the store is as before.
    pub fn recompress(
        &self,
        encoder: &mut zstd::Encoder,
        page: &Page,
        len: StoredLen,
        owner: Owner,
    ) -> Result<Recompressed, StoreError> {
        let old = ClassId::for_len(len.bytes()).slot_bytes();
        let Some(bytes) = encoder.compress(page, len.bytes()) else { return Ok(Recompressed::NotWorth) };
        let Some(len) = StoredLen::new(bytes.len()) else { return Ok(Recompressed::NotWorth) };
        let new = ClassId::for_len(len.bytes()).slot_bytes();
        if len == StoredLen::UNCOMPRESSED || new * 8 > old * WORTH_EIGHTHS {
            return Ok(Recompressed::NotWorth);
        }
        let (handle, checksum) = self.put(bytes, len, owner)?;
        Ok(Recompressed::Object { handle, len, checksum })
    }
}
