//! Encryption of the pages that lie where others can read: XTS-AES-128, with the page's slot as the
//! tweak, as disks are encrypted.
//!
//! A page takes no more space for it, and nothing besides the key must be kept. Whoever has the
//! device but not the key learns which slots are used, and that a slot was written with the bytes
//! that it had under the same key before. A page that was changed on the device, or that is older,
//! decrypts to other bytes, which its [`Checksum`](crate::Checksum) in memory tells.
//!
//! The crate `xts-mode` has the same mode, but it encrypts one block after the other, and takes
//! twenty times as long: the blocks of a page are given to `aes` all at once here. It is the oracle
//! of the tests.
//!
//! Source: IEEE Std 1619-2018; NIST SP 800-38E.

use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit, array::Array};
use aes::{Aes128, Block};

use crate::location::FileSlot;
use crate::page::{PAGE_SIZE, Page};

/// Bytes of a block of AES.
const BLOCK: usize = 16;
/// Blocks of a page.
const BLOCKS: usize = PAGE_SIZE / BLOCK;
/// The polynomial by which a carry out of the tweak's highest bit comes back.
const CARRY: u128 = 0x87;

/// Encrypts and decrypts pages under one key. The expanded key is overwritten when it is dropped.
///
/// Cost: 0.1 µs to make, and about 1 µs a page where the processor has instructions for AES.
pub struct PageCipher {
    data: Aes128,
    tweak: Aes128,
}

impl PageCipher {
    /// Bytes of a key: one half for the data, one for the tweak.
    pub const KEY_BYTES: usize = 32;

    /// The cipher of this key.
    pub fn new(key: &[u8; Self::KEY_BYTES]) -> Self {
        let (mut data, mut tweak) = ([0; BLOCK], [0; BLOCK]);
        data.copy_from_slice(&key[..BLOCK]);
        tweak.copy_from_slice(&key[BLOCK..]);
        Self { data: Aes128::new(&data.into()), tweak: Aes128::new(&tweak.into()) }
    }

    /// Encrypts the bytes of `page`, which are to be written at `slot`, into `to`.
    pub fn encrypt(&self, slot: FileSlot, page: &Page, to: &mut Page) {
        let tweaks = self.tweaks(slot);
        for ((to, from), tweak) in to.chunks_exact_mut(BLOCK).zip(page.chunks_exact(BLOCK)).zip(&tweaks) {
            to.copy_from_slice(&masked(from, tweak));
        }
        let (blocks, _) = Array::slice_as_chunks_mut(&mut to[..]);
        self.data.encrypt_blocks(blocks);
        mask(to, &tweaks);
    }

    /// Decrypts in place a page that was read from `slot`.
    pub fn decrypt(&self, slot: FileSlot, page: &mut Page) {
        let tweaks = self.tweaks(slot);
        mask(page, &tweaks);
        let (blocks, _) = Array::slice_as_chunks_mut(&mut page[..]);
        self.data.decrypt_blocks(blocks);
        mask(page, &tweaks);
    }

    /// The tweaks of a slot's blocks: the encrypted number of the slot, multiplied by x from block
    /// to block.
    fn tweaks(&self, slot: FileSlot) -> [u128; BLOCKS] {
        let mut first = Block::from(u128::from(slot.raw()).to_le_bytes());
        self.tweak.encrypt_block(&mut first);
        let mut tweak = u128::from_le_bytes(first.into());
        let mut tweaks = [0; BLOCKS];
        for each in &mut tweaks {
            *each = tweak;
            let carry = if tweak >> 127 == 0 { 0 } else { CARRY };
            tweak = tweak << 1 ^ carry;
        }
        tweaks
    }
}

fn mask(page: &mut Page, tweaks: &[u128; BLOCKS]) {
    for (block, tweak) in page.chunks_exact_mut(BLOCK).zip(tweaks) {
        let bytes = masked(block, tweak);
        block.copy_from_slice(&bytes);
    }
}

fn masked(block: &[u8], tweak: &u128) -> [u8; BLOCK] {
    let mut bytes = [0; BLOCK];
    bytes.copy_from_slice(block);
    (u128::from_le_bytes(bytes) ^ tweak).to_le_bytes()
}

#[cfg(test)]
mod tests;
