//! Numbers and bytes that look random and repeat with their seed.

use std::time::SystemTime;

/// Marsaglia's xorshift64: each state is the next number. It is small, and the same on every
/// machine.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The sequence that follows `seed`.
    ///
    /// # Panics
    ///
    /// If `seed` is 0, the one state that xorshift never leaves.
    pub const fn new(seed: u64) -> Self {
        assert!(seed != 0, "xorshift never leaves 0");
        Random(seed)
    }

    /// A seed that no run before had, for a test that prints it.
    ///
    /// # Panics
    ///
    /// If the clock stands before 1970.
    pub fn fresh_seed() -> u64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        now.as_nanos() as u64 | 1
    }

    /// The next number, never 0.
    pub const fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `bound`, which must not be 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Bytes that no compressor makes smaller, `bytes` rounded down to a multiple of 8.
pub fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    // Neighbouring seeds are spread over all 64 bits.
    let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    // The multiplication (xorshift64*) fills the high bytes of the first numbers too.
    let mut word = || random.next().wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes();
    (0..bytes / 8).flat_map(|_| word()).collect()
}
