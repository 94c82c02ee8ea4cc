//! Division of labour in a batch of write-backs: the evictor writes the folios that are due from the oldest on, and a thread that has
//! to wait for memory anyway (direct reclaim) writes from the youngest of them back, until they meet.
//!
//! One word says which folios nobody has begun, and which one the helper is at. Pure transitions; the owner of the word exchanges it.
//!
//! | bits 0-15 | bits 16-31 | bits 32-47 | bit 48 |
//! |---|---|---|---|
//! | oldest that nobody has begun | end: one behind the youngest | the helper's folio | 1: it has one |
//!
//! Folios are numbered in the order in which they came, modulo 2^16; no more than 2^15 are due at a time.

/// The word. Zero: nothing is due, nobody helps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Division(u64);

/// What the evictor finds when its next folio is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It is the evictor's alone, once the word is exchanged for this one.
    Mine(Division),
    /// It is the evictor's alone as it is: it is not offered (any more), and the helper is done with it.
    MineAlready,
    /// The helper is at it.
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

    /// The folio that the helper is at.
    pub const fn helped(self) -> Option<u16> {
        if self.0 & Self::HELPING != 0 { Some((self.0 >> 32) as u16) } else { None }
    }

    /// As it was kept.
    pub const fn from_bits(bits: u64) -> Self {
        Division(bits)
    }

    /// The plain number.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Offers `folios` folios from number `oldest` on; `None` while the helper is at one. The evictor's.
    pub const fn offer(self, oldest: u16, folios: u16) -> Option<Self> {
        match self.helped() {
            None => Some(Self::pack(oldest, oldest.wrapping_add(folios), None)),
            Some(_) => None,
        }
    }

    /// The evictor comes to folio `number`.
    pub const fn next(self, number: u16) -> Next {
        match self.helped() {
            Some(helped) if helped == number => Next::Helped,
            helped if self.oldest() == number && self.oldest() != self.end() => {
                Next::Mine(Self::pack(number.wrapping_add(1), self.end(), helped))
            }
            _ => Next::MineAlready,
        }
    }

    /// The helper takes the youngest folio that nobody has begun, and its number. `None`: there is none, or it has one.
    pub const fn help(self) -> Option<(Self, u16)> {
        if self.oldest() == self.end() || self.helped().is_some() {
            return None;
        }
        let number = self.end().wrapping_sub(1);
        Some((Self::pack(self.oldest(), number, Some(number)), number))
    }

    /// The helper is done with its folio.
    pub const fn helped_out(self) -> Self {
        Self::pack(self.oldest(), self.end(), None)
    }

    /// Nothing more is offered. The evictor's, who then waits for the helper.
    pub const fn withdraw(self) -> Self {
        Self::pack(self.end(), self.end(), self.helped())
    }
}

#[cfg(test)]
mod tests;
