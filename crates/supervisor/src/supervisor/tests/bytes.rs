//! An input, taken apart from its start. Behind the end of it there are zeroes.

pub struct Bytes<'a>(pub &'a [u8]);

impl Bytes<'_> {
    /// The next byte; `None` at the end.
    pub fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// The next byte, or 0.
    pub fn byte(&mut self) -> u8 {
        self.next().unwrap_or(0)
    }

    /// A number below `bound`, of one byte.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound.max(1)
    }

    pub fn word(&mut self) -> u64 {
        u64::from_le_bytes([(); 8].map(|()| self.byte()))
    }

    pub fn half_word(&mut self) -> u32 {
        self.word() as u32
    }
}
