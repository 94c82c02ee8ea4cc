//! Random numbers, and random bytes of several kinds.

pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 16) as usize % bound.max(1)
    }
    /// Bytes that compress about as well as text, or not at all, or zeroes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        match self.below(4) {
            0 => vec![0; length],
            1 => (0..length).map(|_| (self.next() >> 24) as u8).collect(),
            _ => {
                let word = self.next().to_le_bytes();
                (0..length).map(|at| word[at % 8].wrapping_add((at / 512) as u8)).collect()
            }
        }
    }
}
