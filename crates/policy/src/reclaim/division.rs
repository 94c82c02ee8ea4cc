//! Division of labour in a batch of write-backs: the evictor writes the berths that are due from
//! the oldest on, and a thread that has to wait for memory anyway (direct reclaim) writes from the
//! youngest of them back, until they meet.
//!
//! One word says which berths neither has begun, and at which one the helper is. The transitions
//! are pure; the owner of the word exchanges it.
//!
//! | bits 0-15 | bits 16-31 | bits 32-47 | bit 48 |
//! |---|---|---|---|
//! | oldest not begun | end: one behind the youngest | the helper's berth | 1: the helper has one |
//!
//! Berths are numbered in the order in which they were filled, modulo 2^16; no more than 2^15 are
//! due at a time.

/// The word. Zero: nothing is due, and there is no helper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Division(u64);

/// The state of the evictor's next berth when it is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The berth is the evictor's alone, once the word is exchanged for this one.
    Mine(Division),
    /// The berth is the evictor's alone as it is: it is not offered (any more), and the helper is
    /// done with it.
    MineAlready,
    /// The helper is at the berth.
    Helped,
}

impl Division {
    const HELPING: u64 = 1 << 48;

    const fn pack(oldest: u16, end: u16, helped: Option<u16>) -> Self {
        let helped = match helped {
            Some(number) => (number as u64) << 32 | Self::HELPING,
            None => 0,
        };
        Division(oldest as u64 | (end as u64) << 16 | helped)
    }

    const fn oldest(self) -> u16 {
        self.0 as u16
    }

    const fn end(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// Returns the berth that the helper is at.
    pub const fn helped(self) -> Option<u16> {
        if self.0 & Self::HELPING != 0 { Some((self.0 >> 32) as u16) } else { None }
    }

    /// Makes the word from the number that [`Division::bits`] gave.
    pub const fn from_bits(bits: u64) -> Self {
        Division(bits)
    }

    /// Returns the word as a plain number.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Offers `berths` berths from number `oldest` on. Returns `None` while the helper is at one.
    /// Called by the evictor.
    pub const fn offer(self, oldest: u16, berths: u16) -> Option<Self> {
        match self.helped() {
            None => Some(Self::pack(oldest, oldest.wrapping_add(berths), None)),
            Some(_) => None,
        }
    }

    /// Returns the state of berth `number`, to which the evictor comes next.
    pub const fn next(self, number: u16) -> Next {
        match self.helped() {
            Some(helped) if helped == number => Next::Helped,
            helped if self.oldest() == number && self.oldest() != self.end() => {
                Next::Mine(Self::pack(number.wrapping_add(1), self.end(), helped))
            }
            _ => Next::MineAlready,
        }
    }

    /// Takes the youngest berth that neither has begun, for the helper; returns its number too.
    /// Returns `None` when there is none, or when the helper has one.
    pub const fn help(self) -> Option<(Self, u16)> {
        if self.oldest() == self.end() || self.helped().is_some() {
            return None;
        }
        let number = self.end().wrapping_sub(1);
        Some((Self::pack(self.oldest(), number, Some(number)), number))
    }

    /// Ends the helper's work at its berth.
    pub const fn helped_out(self) -> Self {
        Self::pack(self.oldest(), self.end(), None)
    }

    /// Withdraws the offer. Called by the evictor, which then waits for the helper.
    pub const fn withdraw(self) -> Self {
        Self::pack(self.end(), self.end(), self.helped())
    }
}

#[cfg(test)]
mod tests;
