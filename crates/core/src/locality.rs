//! Are the neighbours of a page that is touched out of order wanted too, before they would leave again?
//!
//! No accessed bit tells what becomes of a page that was brought along. So a part of each block, every eighth of its 64 KiB pieces and
//! others each time, is a sample: there a fault brings its own page only. While the resident memory is exchanged once (a
//! *turnover*), a page that is away and wanted is faulted in. Where at least three quarters as many faults came as pages are away, a neighbour
//! is more likely to be touched than not while it stays, and in the block's other pieces a fault brings all of its piece.
//! (Sampled sets decide between two ways of replacing lines of a cache in the same manner: Qureshi et al., *Adaptive
//! Insertion Policies for High Performance Caching*, ISCA 2007.)

use core::sync::atomic::{AtomicU8, AtomicU16, Ordering::Relaxed};

/// Pieces of a block: 64 KiB each.
pub const PIECES: usize = 32;
/// Of so many pieces one is sampled.
const SAMPLED_OF: usize = 8;
/// Fewer faults in the sample tell nothing.
const FAULTS_MIN: usize = 16;

/// What a fault out of order should do with the rest of its piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbours {
    /// They stay where they are.
    Stay,
    /// They come along.
    Come,
}

/// What is known of a block. All-zero: nothing. Advisory: the handler reads and writes it.
#[derive(Debug, Default)]
pub struct Locality {
    turnover: AtomicU16,
    /// Faults in the sample during this turnover.
    faults: AtomicU16,
    /// What the last turnover's faults told.
    wanted: AtomicU8,
}

impl Locality {
    /// A fault out of order in a piece (0 to 31) during a turnover: what becomes of its neighbours? `away(piece)` counts the pages of
    /// a piece that are swapped out; it is asked for four pieces once in a turnover.
    pub fn fault(&self, piece: usize, turnover: u16, mut away: impl FnMut(usize) -> usize) -> Neighbours {
        let last = self.turnover.swap(turnover, Relaxed);
        if last != turnover {
            let faults = usize::from(self.faults.swap(0, Relaxed));
            let is_known = last.wrapping_add(1) == turnover && faults >= FAULTS_MIN;
            let are_wanted = is_known && {
                let sample = (0..PIECES).filter(|&piece| is_sampled(piece, last));
                4 * faults >= 3 * sample.map(&mut away).sum::<usize>()
            };
            self.wanted.store(u8::from(are_wanted), Relaxed);
        }
        if is_sampled(piece, turnover) {
            self.faults.store(self.faults.load(Relaxed).saturating_add(1), Relaxed);
            Neighbours::Stay
        } else if self.wanted.load(Relaxed) != 0 {
            Neighbours::Come
        } else {
            Neighbours::Stay
        }
    }
}

fn is_sampled(piece: usize, turnover: u16) -> bool {
    (piece + usize::from(turnover)).is_multiple_of(SAMPLED_OF)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Neighbours::{Come, Stay};

    /// Faults in all pieces, so many in each.
    fn turnover(locality: &Locality, turnover: u16, faults: usize, away: usize) -> [Neighbours; PIECES] {
        let mut advice = [Stay; PIECES];
        for _ in 0..faults {
            for (piece, advice) in advice.iter_mut().enumerate() {
                *advice = locality.fault(piece, turnover, |_| away);
            }
        }
        advice
    }

    fn coming(advice: [Neighbours; PIECES]) -> usize {
        advice.iter().filter(|&&advice| advice == Come).count()
    }

    #[test]
    fn neighbours_come_where_what_is_away_is_wanted_within_a_turnover() {
        let locality = Locality::default();
        assert_eq!(coming(turnover(&locality, 7, 9, 12)), 0, "nothing is known yet");
        // All but the sample.
        assert_eq!(coming(turnover(&locality, 8, 8, 12)), PIECES - PIECES / SAMPLED_OF);
        assert_eq!(coming(turnover(&locality, 9, 9, 12)), 0, "8 of 12 were wanted");
        assert_eq!(coming(turnover(&locality, 10, 9, 12)), PIECES - PIECES / SAMPLED_OF);
    }

    #[test]
    fn few_faults_and_old_ones_tell_nothing() {
        let locality = Locality::default();
        turnover(&locality, 1, 3, 0);
        assert_eq!(coming(turnover(&locality, 2, 9, 12)), 0, "12 faults in the sample");
        assert_eq!(coming(turnover(&locality, 4, 9, 12)), 0, "nothing was seen in turnover 3");
    }

    #[test]
    fn every_piece_is_sampled_in_its_turn() {
        for piece in 0..PIECES {
            assert_eq!((0..SAMPLED_OF as u16).filter(|&turnover| is_sampled(piece, turnover)).count(), 1);
        }
    }
}
