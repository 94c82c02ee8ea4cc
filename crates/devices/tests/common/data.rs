//! Pages of known kinds, from a seed.

use folioswap_devices::{PAGE_SIZE, Page};

/// xorshift64*: small, seeded, the same everywhere.
#[derive(Clone)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// The contents of a page. The ratios are LZ4's, over many pages; single pages vary around them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageKind {
    Zero,
    SameFilled,
    TwoToOne,
    ThreeToOne,
    Incompressible,
    /// A few hundred words in random order: zstd makes it a third smaller than LZ4 does.
    Text,
    /// Words that share most of their bytes: base-delta makes them a quarter to a half.
    Numbers,
    /// Any of the others, and all ratios between.
    Mixed,
}

impl PageKind {
    pub const ALL: [Self; 8] = [
        Self::Zero,
        Self::SameFilled,
        Self::TwoToOne,
        Self::ThreeToOne,
        Self::Incompressible,
        Self::Text,
        Self::Numbers,
        Self::Mixed,
    ];

    /// The page of this kind with this seed.
    pub fn page(self, seed: u64) -> Page {
        let mut rng = Rng::new(seed ^ 0x5eed);
        let mut page = [0; PAGE_SIZE];
        match self {
            Self::Zero => {}
            Self::SameFilled => {
                let word = rng.next().to_le_bytes();
                page.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&word));
            }
            // Fresh bytes in percent, with a spread from page to page.
            Self::TwoToOne => {
                let percent = 20 + rng.below(30);
                sequences(&mut rng, &mut page, percent, 16)
            }
            Self::ThreeToOne => {
                let percent = 10 + rng.below(24);
                sequences(&mut rng, &mut page, percent, 36)
            }
            Self::Incompressible => sequences(&mut rng, &mut page, 100, 16),
            Self::Text => text(&mut rng, &mut page),
            Self::Numbers => numbers(&mut rng, &mut page),
            Self::Mixed => match rng.below(13) {
                0 => {}
                1 => return Self::SameFilled.page(seed),
                2 => return Self::Incompressible.page(seed),
                12 => return Self::Numbers.page(seed),
                3..6 => return Self::TwoToOne.page(seed),
                6..9 => return Self::ThreeToOne.page(seed),
                _ => {
                    let percent = rng.below(101);
                    sequences(&mut rng, &mut page, percent, 16)
                }
            },
        }
        page
    }
}

/// LZ-like content: runs of fresh bytes and copies of earlier ones (6 bytes up), as in memory of
/// words and pointers.
fn sequences(rng: &mut Rng, page: &mut Page, fresh_percent: u64, copy_spread: u64) {
    let mut at = 0;
    while at < PAGE_SIZE {
        if at < 32 || rng.below(100) < fresh_percent {
            for _ in 0..8 {
                if at < PAGE_SIZE {
                    page[at] = (rng.next() >> 32) as u8;
                    at += 1;
                }
            }
        } else {
            let back = 4 + rng.below(at.min(2048) as u64 - 4) as usize;
            for _ in 0..6 + rng.below(copy_spread) {
                if at < PAGE_SIZE {
                    page[at] = page[at - back];
                    at += 1;
                }
            }
        }
    }
}

/// Each of 400 words has three to nine letters, the same everywhere.
fn text(rng: &mut Rng, page: &mut Page) {
    let mut at = 0;
    while at < page.len() {
        let mut letters = Rng::new(rng.below(400) + 1);
        for _ in 0..3 + letters.below(7) {
            let Some(byte) = page.get_mut(at) else { return };
            *byte = b'a' + letters.below(26) as u8;
            at += 1;
        }
        let Some(byte) = page.get_mut(at) else { return };
        *byte = b' ';
        at += 1;
    }
}

/// Words of four or eight bytes with the same base, of which one or two of four and up to four of
/// eight bytes differ.
fn numbers(rng: &mut Rng, page: &mut Page) {
    let (base, kept) = (rng.next(), rng.below(4) + 1);
    let size = if kept <= 2 && rng.below(2) == 0 { 4 } else { 8 };
    let low = rng.below(size - kept + 1);
    for word in page.chunks_exact_mut(size as usize) {
        word.copy_from_slice(&base.to_le_bytes()[..size as usize]);
        let fresh = rng.next().to_le_bytes();
        word[low as usize..][..kept as usize].copy_from_slice(&fresh[..kept as usize]);
    }
}
