//! Encryption of pages, each with the proof that it is what was written last at its place.
//!
//! A page is sealed with a nonce that is the number of the write, which never comes again under the key. Device, slot and that number
//! are authenticated along, and number and tag stay in memory beside the slot. So what comes back is the page that was
//! written last in this slot, or it does not open: a changed, moved, older or missing one is found out. The key is random, one for each
//! run, and never leaves locked memory ([`crate::key`]).

use crate::key::{KeyError, Locked, best_cipher, random_key};
use ring::aead::{Aad, LessSafeKey, Nonce, Tag};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What stays in memory of a page that was sealed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seal {
    /// The number of its write; 0: nothing was written.
    generation: u64,
    tag: [u8; 16],
}

impl Seal {
    /// Was anything written?
    pub const fn is_written(&self) -> bool {
        self.generation != 0
    }
}

/// What was read is not what was sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAuthentic;

/// Seals and opens pages of one device. Cost with AES instructions: about a microsecond for 4 KiB.
pub struct Sealer {
    key: Locked<LessSafeKey>,
    device: [u8; 16],
    /// The number of the next write. 2^64 writes do not happen.
    next: AtomicU64,
}

impl Sealer {
    /// With a new random key, for the device of this name.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn new(device: [u8; 16]) -> Result<Self, KeyError> {
        Ok(Sealer { key: random_key(best_cipher())?, device, next: AtomicU64::new(1) })
    }

    /// With this cipher, to compare them.
    #[doc(hidden)]
    pub fn with_cipher(cipher: &'static ring::aead::Algorithm) -> Result<Self, KeyError> {
        Ok(Sealer { key: random_key(cipher)?, device: [0; 16], next: AtomicU64::new(1) })
    }

    /// Encrypts a page in place that is to be written at `slot`.
    pub fn seal(&self, slot: u64, page: &mut [u8]) -> Seal {
        let generation = self.next.fetch_add(1, Relaxed);
        let (nonce, along) = self.bound_to(slot, generation);
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(along), page);
        // Only more data than 64 GiB under one nonce is refused.
        let tag = tag.expect("a page is short enough");
        let mut seal = Seal { generation, tag: [0; 16] };
        seal.tag.copy_from_slice(tag.as_ref());
        seal
    }

    /// Decrypts a page in place that was read from `slot`.
    ///
    /// # Errors
    /// [`NotAuthentic`]; the page is of no use then.
    pub fn open(&self, slot: u64, seal: &Seal, page: &mut [u8]) -> Result<(), NotAuthentic> {
        let (nonce, along) = self.bound_to(slot, seal.generation);
        let opened =
            self.key.open_in_place_separate_tag(nonce, Aad::from(along), Tag::from(seal.tag), page, 0..);
        opened.map(drop).map_err(|_| NotAuthentic)
    }

    fn bound_to(&self, slot: u64, generation: u64) -> (Nonce, [u8; 32]) {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&generation.to_le_bytes());
        let mut along = [0; 32];
        along[..16].copy_from_slice(&self.device);
        along[16..24].copy_from_slice(&slot.to_le_bytes());
        along[24..].copy_from_slice(&generation.to_le_bytes());
        (Nonce::assume_unique_for_key(nonce), along)
    }
}

#[cfg(test)]
mod tests;
