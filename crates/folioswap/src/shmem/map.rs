//! An object's contents as memory: a private mapping.

use super::ShmemObject;
use crate::{Error, Region, Swap};
use std::ops::{Bound, RangeBounds};

impl ShmemObject {
    /// Makes a private mapping (as mmap(2) with MAP_PRIVATE, all of it read at once): a region of
    /// `swap` with the contents that the range of bytes has now. Later writes to the region do not
    /// reach the object, nor the reverse; [`ShmemObject::write`] copies contents back. Holes stay
    /// untouched. A read or write of a page excludes the copying of that page.
    ///
    /// There is no shared mapping, because an object's folio that was swapped out comes back at
    /// another address. Where processes share contents, or calls and memory do, use a mapped file
    /// of `folioswap mount`.
    ///
    /// Cost: a copy of the content. The region counts towards the limit of `swap`, and swaps to its
    /// devices.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] behind the object's end; [`Error::Object`] where a page cannot be
    /// read; those of [`Swap::region`], which include an empty range. A failed call leaves nothing
    /// behind.
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
            // The object may have become shorter meanwhile; the rest of the region is then a hole.
            let Some(hole) = self.seek_hole(data)? else { break };
            let hole = hole.min(end);
            let bytes = &mut region.as_mut_slice()[(data - start) as usize..(hole - start) as usize];
            self.read(data, bytes)?;
            at = hole;
        }
        Ok(region)
    }
}
