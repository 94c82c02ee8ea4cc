//! Recompression: a page that has been idle is stored once more, smaller, with a codec that takes longer (the kernel's zram does the same
//! when its `recompress` is written to).
//!
//! The store makes the new object and no more: which of the two a location names is the caller's to exchange, under the location's
//! LOCK bit, and then it frees the other one.

use super::class::ClassId;
use super::{StoreError, Zram};
use crate::checksum::Checksum;
use crate::location::{Handle, Owner, StoredLen};
use crate::memory::PageMemory;
use crate::page::Page;
use crate::zstd;

/// A new object takes at most this part of the old one's slot, in eighths: below that it is not worth the longer way back.
const WORTH_EIGHTHS: usize = 7;

/// What [`Zram::recompress`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Recompressed {
    /// There is a second object of the page, of [`Codec::Zstd`](crate::location::Codec::Zstd): one of the two is to be freed.
    Object {
        /// Its name.
        handle: Handle,
        /// Its bytes.
        len: StoredLen,
        /// Over its bytes.
        checksum: Checksum,
    },
    /// Its slot would not be smaller by at least an eighth. Nothing is stored.
    NotWorth,
}

impl<M: PageMemory> Zram<M> {
    /// Stores `page`, of which the store has an object of `len` bytes, once more with zstd if its slot becomes smaller by at least
    /// an eighth. No same-filled page: of those there are no objects. From any number of threads, each with its own encoder. About
    /// 18 µs at 2:1, under no lock.
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
        if len == StoredLen::WHOLE_PAGE || new * 8 > old * WORTH_EIGHTHS {
            return Ok(Recompressed::NotWorth);
        }
        let (handle, checksum) = self.put(bytes, len, owner)?;
        Ok(Recompressed::Object { handle, len, checksum })
    }
}
