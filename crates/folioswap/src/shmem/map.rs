//! An object's contents as memory: a private mapping.

use super::ShmemObject;
use crate::{Error, Region, Swap};
use std::ops::{Bound, RangeBounds};

impl ShmemObject {
    /// A private mapping (mmap(2) with MAP_PRIVATE, all of it read at once): a region of `swap` that holds what the range of bytes holds now. What is
    /// written to it afterwards is its own, as is what others write to the object meanwhile or later; [`ShmemObject::write`] takes it back.
    /// Holes stay untouched. A read or write of one page excludes the copying of that page.
    ///
    /// There is no shared mapping: an object's folio that leaves comes back at another place. Where processes, or calls and memory, are to share
    /// contents, a mapped file of `folioswap mount` does that.
    ///
    /// Cost: a copy of what is there. The region is within the limit of `swap`, and swaps to its devices.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] behind the object's end, [`Error::Object`] where a page of it cannot be read, those of [`Swap::region`] (an empty range
    /// among them). Nothing is left then.
    ///
    /// ```
    /// use folioswap::{ShmemSpace, Swap};
    ///
    /// let swap = Swap::builder().limit("32M").build()?;
    /// let space = ShmemSpace::builder().limit("8M").within(&swap).build()?;
    /// let object = space.object()?;
    /// object.write(1 << 20, b"content")?;
    /// let mut region = object.map(&swap, 1 << 20..)?;
    /// region.as_mut_slice()[0] = b'C';
    /// assert_eq!(region.as_slice(), b"Content");
    /// let mut bytes = [0; 7];
    /// object.read(1 << 20, &mut bytes)?;
    /// assert_eq!(&bytes, b"content");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn map(&self, swap: &Swap, range: impl RangeBounds<u64>) -> Result<Region, Error> {
        let size = self.size();
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => size,
        };
        if start > end || end > size {
            return Err(Error::OutOfRange {
                start: start as usize,
                end: end as usize,
                length: size as usize,
            });
        }
        let mut region = swap.region(end - start)?;
        let mut at = start;
        while let Some(data) = self.seek_data(at)?.map(|data| data.max(at)).filter(|&data| data < end) {
            // The object may have become shorter meanwhile: then the rest is a hole.
            let Some(hole) = self.seek_hole(data)? else { break };
            let hole = hole.min(end);
            let bytes = &mut region.as_mut_slice()[(data - start) as usize..(hole - start) as usize];
            self.read(data, bytes)?;
            at = hole;
        }
        Ok(region)
    }
}
