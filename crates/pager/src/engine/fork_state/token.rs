//! A fork token in the engine's memory.

use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use folioswap_group::protocol::ForkToken;

/// A fork token. All-zero is [`ForkToken::NONE`]. One thread stores at a time, while no other
/// reads: the two words are not changed at once.
#[repr(C)]
pub(crate) struct TokenCell([AtomicU64; 2]);

impl TokenCell {
    pub(crate) fn load(&self) -> ForkToken {
        let [low, high] = &self.0;
        ForkToken::from_words([low.load(Acquire), high.load(Relaxed)])
    }

    pub(crate) fn store(&self, token: ForkToken) {
        let ([low, high], words) = (&self.0, token.words());
        high.store(words[1], Relaxed);
        low.store(words[0], Release);
    }
}

#[cfg(test)]
mod tests;
