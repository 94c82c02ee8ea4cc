//! How much of a shared amount each group gets: by weight, but never more than it needs while
//! another needs more.

/// What a group could use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// So many bytes are enough.
    Enough(u64),
    /// It swaps, so it could use more than it has; how much is not known.
    More,
}

/// A group that takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Party {
    /// Its weight, at least 1.
    pub weight: u32,
    /// The bytes that it gets in any case: what cannot leave it.
    pub least: u64,
    /// What it could use.
    pub need: Need,
}

/// A byte for each unit of weight, in the fractions of which levels are made.
const LEVEL: u128 = 1 << 20;

impl Party {
    /// What it gets at a level.
    fn at(&self, level: u128) -> u64 {
        let share = u64::try_from(level * u128::from(self.weight) / LEVEL).unwrap_or(u64::MAX);
        match self.need {
            Need::Enough(need) => share.min(need).max(self.least),
            Need::More => share.max(self.least),
        }
    }
}

/// Shares `total` bytes; one number a party, in whole MiB except for least parts.
///
/// As water in vessels as wide as the weights: there is one level, in bytes for each unit of
/// weight, up to which each is filled, but for its least part, which it has in any case, and its
/// need, above which it gets nothing. Where all needs are met, what is left is shared by weight, as
/// room for growth. The sum is at most `total`, unless the least parts alone are more. Cost: 84
/// times the number of parties.
pub fn allot(total: u64, parties: &[Party]) -> Vec<u64> {
    let sum = |level: u128| parties.iter().map(|party| party.at(level)).fold(0, u64::saturating_add);
    // The highest level whose sum is within the total; level 0 gives the least parts.
    let (mut level, mut above) = (0, (u128::from(total) + 1) * LEVEL);
    while above - level > 1 {
        let middle = level + (above - level) / 2;
        if sum(middle) <= total { level = middle } else { above = middle }
    }
    let mut given: Vec<u64> = parties.iter().map(|party| party.at(level)).collect();
    let mut spare = total.saturating_sub(sum(level));
    let rises: Vec<bool> = parties.iter().map(|party| party.at(level + LEVEL) > party.at(level)).collect();
    if rises.contains(&true) {
        // Rounding has left less than a byte for each of those that could have more.
        for (bytes, _) in given.iter_mut().zip(rises).filter(|(_, rises)| *rises) {
            let odd = spare.min(1);
            *bytes += odd;
            spare -= odd;
        }
    } else {
        let weights: u128 = parties.iter().map(|party| u128::from(party.weight)).sum();
        for (bytes, party) in given.iter_mut().zip(parties) {
            *bytes += (u128::from(spare) * u128::from(party.weight) / weights) as u64;
        }
    }
    given.iter().zip(parties).map(|(bytes, party)| (bytes >> 20 << 20).max(party.least)).collect()
}

#[cfg(test)]
mod tests;
