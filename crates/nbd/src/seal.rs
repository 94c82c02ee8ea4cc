//! Encryption of pages, each with the proof that it is the last one written at its place.
//!
//! A page is sealed with a nonce that is the number of its write, which never occurs again under
//! the key. Device, slot and that number are authenticated with it; number and tag stay in memory
//! beside the slot. A page opens only if it is the one written last in this slot, so a changed,
//! moved, older or missing page is detected. The key is random, one for each run, and never leaves
//! locked memory ([`crate::key`]).

use crate::key::{KeyError, Locked, best_cipher, random_key};
use ring::aead::{Aad, LessSafeKey, Nonce, Tag};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The part of a sealed page that stays in memory: 24 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seal {
    /// The number of its write; 0: nothing was written.
    generation: u64,
    tag: [u8; 16],
}

impl Seal {
    /// Whether a page was written.
    pub const fn is_written(&self) -> bool {
        self.generation != 0
    }
}

/// The page read is not the page that was sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAuthentic;

/// Seals and opens the pages of one device. Cost with AES instructions: about 1 µs for 4 KiB.
pub struct Sealer {
    key: Locked<LessSafeKey>,
    device: [u8; 16],
    /// The number of the next write; 2^64 writes are never reached.
    next: AtomicU64,
}

impl Sealer {
    /// A sealer with a new random key, for the device of this name.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn new(device: [u8; 16]) -> Result<Self, KeyError> {
        Ok(Sealer { key: random_key(best_cipher())?, device, next: AtomicU64::new(1) })
    }

    /// A sealer with this cipher, for comparing ciphers.
    #[doc(hidden)]
    pub fn with_cipher(cipher: &'static ring::aead::Algorithm) -> Result<Self, KeyError> {
        Ok(Sealer { key: random_key(cipher)?, device: [0; 16], next: AtomicU64::new(1) })
    }

    /// Encrypts in place a page that is to be written at `slot`.
    pub fn seal(&self, slot: u64, page: &mut [u8]) -> Seal {
        let generation = self.next.fetch_add(1, Relaxed);
        let (nonce, along) = self.bound_to(slot, generation);
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(along), page);
        // Only data of more than 64 GiB under one nonce is refused.
        let tag = tag.expect("a page is short enough");
        let mut seal = Seal { generation, tag: [0; 16] };
        seal.tag.copy_from_slice(tag.as_ref());
        seal
    }

    /// Decrypts in place a page that was read from `slot`.
    ///
    /// # Errors
    /// [`NotAuthentic`]; the page then holds arbitrary bytes.
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
