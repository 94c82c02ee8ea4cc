//! Ranges of a region that stay resident.

use crate::{Error, Region};
use folioswap_pager::embed::managed::Command;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// The pinned ranges of a region, one for each guard. They may overlap.
#[derive(Debug, Default)]
pub(crate) struct Pins(Mutex<Vec<Range<usize>>>);

/// Keeps a range of a region resident until dropped. Returned by [`Region::pin`].
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

/// Returns the parts of `range` that none of `others` contains.
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
            // Where the kernel has no mapping left to split the range, it stays pinned until the
            // region is dropped.
            let _ = self.region.engine.command(Command::Release, piece.start, piece.end);
        }
        inner.take_pinned(self.range.len() as u64);
    }
}

#[cfg(test)]
mod tests;
