//! Are the neighbours of a page that is touched out of order wanted too, before they would leave again?
//!
//! Faults tell: while a part of the resident memory is exchanged (a *turn*, a quarter of it), so many of the pages of a block that are
//! away are faulted in, each by itself. If that goes on, a page that comes back is touched before it leaves again with the
//! probability 1 - exp(-r), where r is four times these faults, divided by the pages that are away. From r = 0.6 on a fault brings all
//! of its 64 KiB piece.
//!
//! Then nothing tells any more what would have become of a neighbour, since user space has no accessed bit. So an eighth of the pieces, others
//! in each turn, stays a sample, in which a page comes alone; when r falls under 0.3 there, each page comes alone again. (Sampled
//! sets decide in the same manner between two ways of replacing the lines of a cache: Qureshi et al., *Adaptive Insertion Policies for
//! High Performance Caching*, ISCA 2007.)

use core::sync::atomic::{AtomicU8, AtomicU16, Ordering::Relaxed};

/// Pieces of a block: 64 KiB each.
pub const PIECES: usize = 32;
/// Turns in which as many pages leave as are resident.
pub const TURNS: u64 = 4;
/// Of so many pieces one is sampled.
const SAMPLED_OF: usize = 8;
/// Fewer faults in a whole block tell nothing.
const FAULTS_MIN: usize = 16;
/// r, in hundredths, from which on neighbours come, and under which they stay again.
const COME_FROM: usize = 60;
const STAY_UNDER: usize = 30;

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
    turn: AtomicU16,
    /// Faults in this turn, in the pieces where pages come alone.
    faults: AtomicU16,
    /// Do neighbours come in this turn?
    come: AtomicU8,
}

impl Locality {
    /// A fault out of order in a piece (0 to 31): what becomes of its neighbours? `turn` counts the process's turns. `away(piece)` counts the
    /// pages of a piece that are swapped out; it is asked for each piece at most once in a turn.
    pub fn fault(&self, piece: usize, turn: u16, away: impl FnMut(usize) -> usize) -> Neighbours {
        let last = self.turn.swap(turn, Relaxed);
        if last != turn {
            let faults = usize::from(self.faults.swap(0, Relaxed));
            let come = last.wrapping_add(1) == turn && self.is_worth_it(faults, last, away);
            self.come.store(u8::from(come), Relaxed);
        }
        if self.come.load(Relaxed) != 0 && !is_sampled(piece, turn) {
            return Neighbours::Come;
        }
        self.faults.store(self.faults.load(Relaxed).saturating_add(1), Relaxed);
        Neighbours::Stay
    }

    /// After a turn with so many faults in the pieces where pages came alone.
    fn is_worth_it(&self, faults: usize, turn: u16, away: impl FnMut(usize) -> usize) -> bool {
        let (come, share) = (self.come.load(Relaxed) != 0, 100 * TURNS as usize * faults);
        let pieces = (0..PIECES).filter(|&piece| !come || is_sampled(piece, turn));
        let away: usize = pieces.map(away).sum();
        if come { share >= STAY_UNDER * away } else { faults >= FAULTS_MIN && share >= COME_FROM * away }
    }
}

fn is_sampled(piece: usize, turn: u16) -> bool {
    (piece + usize::from(turn)).is_multiple_of(SAMPLED_OF)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Neighbours::{Come, Stay};

    /// So many faults in each piece, of which so many pages are away. In how many pieces do neighbours come?
    fn turn(locality: &Locality, turn: u16, faults: usize, away: usize) -> usize {
        let mut advice = [Stay; PIECES];
        for _ in 0..faults {
            for (piece, advice) in advice.iter_mut().enumerate() {
                *advice = locality.fault(piece, turn, |_| away);
            }
        }
        advice.iter().filter(|&&advice| advice == Come).count()
    }

    const ALL_BUT_THE_SAMPLE: usize = PIECES - PIECES / SAMPLED_OF;

    #[test]
    fn neighbours_come_where_what_is_away_is_wanted_before_long() {
        let locality = Locality::default();
        assert_eq!(turn(&locality, 7, 2, 14), 0, "nothing is known yet");
        assert_eq!(turn(&locality, 8, 1, 14), 0, "8 / 14 are less than 0.6");
        assert_eq!(turn(&locality, 9, 2, 14), 0);
        assert_eq!(turn(&locality, 10, 1, 13), ALL_BUT_THE_SAMPLE, "8 / 13 are more");
        assert_eq!(
            turn(&locality, 11, 1, 13),
            ALL_BUT_THE_SAMPLE,
            "4 / 13 in the sample are enough to go on"
        );
        assert_eq!(turn(&locality, 12, 1, 14), 0, "4 / 14 are not");
        assert_eq!(turn(&locality, 13, 1, 6), ALL_BUT_THE_SAMPLE);
    }

    #[test]
    fn few_faults_and_old_ones_tell_nothing() {
        let locality = Locality::default();
        for piece in 0..FAULTS_MIN - 1 {
            assert_eq!(locality.fault(piece, 1, |_| 0), Stay);
        }
        assert_eq!(turn(&locality, 2, 9, 12), 0);
        assert_eq!(turn(&locality, 4, 9, 12), 0, "nothing was seen in turn 3");
    }

    #[test]
    fn every_piece_is_sampled_in_its_turn() {
        for piece in 0..PIECES {
            assert_eq!((0..SAMPLED_OF as u16).filter(|&turn| is_sampled(piece, turn)).count(), 1);
        }
    }
}
