//! Ranges of a region that stay resident.

use crate::{Error, Region};
use folioswap_pager::embed::managed::Command;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// The ranges of a region that are pinned now, one for each guard; they may overlap.
#[derive(Debug, Default)]
pub(crate) struct Pins(Mutex<Vec<Range<usize>>>);

/// Keeps a range of a region resident until it is dropped. Made by [`Region::pin`].
///
/// ```
/// let swap = folioswap::Swap::builder().limit("64M").build()?;
/// let region = swap.region("4M")?;
/// let pinned = region.pin(0..8192)?;
/// region.page_out(..)?;
/// assert_eq!(region.resident_bytes(..8192)?, 8192);
/// drop(pinned);
/// region.page_out(..)?;
/// # Ok::<(), folioswap::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the range is pinned only as long as the guard lives"]
pub struct Pin<'region> {
    region: &'region Region,
    range: Range<usize>,
}

/// What of `range` none of `others` contains.
fn without(range: Range<usize>, others: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut left = vec![range];
    for other in others {
        let cut = |piece: Range<usize>| {
            [piece.start..piece.end.min(other.start), piece.start.max(other.end)..piece.end]
        };
        left = left.into_iter().flat_map(cut).filter(|piece| piece.start < piece.end).collect();
    }
    left
}

impl<'region> Pin<'region> {
    pub(crate) fn new(region: &'region Region, range: Range<usize>) -> Result<Self, Error> {
        let inner = &region.inner;
        let bytes = range.len() as u64;
        inner.add_pinned(bytes)?;
        let mut pins = region.pins.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !range.is_empty()
            && let Err(errno) = region.engine.command(Command::Keep, range.start, range.end)
        {
            inner.take_pinned(bytes);
            return Err(Error::System { doing: "pinning", errno });
        }
        pins.push(range.clone());
        Ok(Pin { region, range })
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        let inner = &self.region.inner;
        if inner.check_process().is_err() {
            return;
        }
        let mut pins = self.region.pins.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = pins.iter().position(|range| *range == self.range) {
            pins.swap_remove(place);
        }
        for piece in without(self.range.clone(), &pins) {
            // Without room for one more hole it stays pinned until the region is dropped.
            let _ = self.region.engine.command(Command::Release, piece.start, piece.end);
        }
        inner.take_pinned(self.range.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_hold_stays() {
        let left = |range, others: &[(usize, usize)]| {
            let others: Vec<_> = others.iter().map(|&(start, end)| start..end).collect();
            let pieces = without(range, &others).into_iter();
            pieces.map(|piece| (piece.start, piece.end)).collect::<Vec<_>>()
        };
        assert_eq!(left(0..10, &[]), [(0, 10)]);
        assert_eq!(left(0..10, &[(2, 4), (6, 7)]), [(0, 2), (4, 6), (7, 10)]);
        assert_eq!(left(3..5, &[(0, 4)]), [(4, 5)]);
        assert_eq!(left(3..5, &[(0, 4), (4, 9)]), []);
    }
}
