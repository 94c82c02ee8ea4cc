//! Helpers of several tests.

/// Reproducible pseudo-random numbers (xorshift64*). The seed must not be 0.
pub struct Numbers(pub u64);

impl Numbers {
    /// Returns the next number.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}
