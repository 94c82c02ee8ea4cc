//! Copy-on-write clones of regions.

use crate::mapping::Mapping;
use crate::{Error, Region};
use folioswap_pager::engine::advices::Advice;
use std::sync::Arc;

/// Bytes that are cloned between two rounds of paging out.
const CLONED_AT_ONCE: usize = 32 << 20;

impl Region {
    /// Makes a copy-on-write clone: another region with the same contents, in the same swap and
    /// fault mode. Stored pages are not stored twice: both regions hold the same counted swap
    /// entries until one of them writes. Resident pages therefore leave first, as by
    /// [`Region::page_out`]; pages that cannot leave (pinned or locked) are copied. The original
    /// keeps its contents, and any thread may read it meanwhile. Where other threads write to it
    /// through raw pointers meanwhile, the clone has each page as it was at some moment of the
    /// call.
    ///
    /// Cost: paging out the resident pages, then 0.1 µs for each page. Dropping either region frees
    /// only the pages that it alone holds.
    ///
    /// # Errors
    /// [`Error::System`] without memory for the tables, [`Error::TooLarge`], [`Error::Forked`],
    /// [`Error::Closed`]. A failed call leaves nothing behind.
    ///
    /// ```
    /// let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// let mut region = swap.region("4M")?;
    /// region.as_mut_slice().fill(1);
    /// let mut clone = region.try_clone()?;
    /// region.as_mut_slice()[0] = 2;
    /// clone.as_mut_slice()[1] = 3;
    /// assert_eq!(region.as_slice()[..3], [2, 1, 1]);
    /// assert_eq!(clone.as_slice()[..3], [1, 3, 1]);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn try_clone(&self) -> Result<Region, Error> {
        self.inner.check_process()?;
        self.inner.check_open()?;
        self.inner.check_tables(self.length as u64)?;
        let (from, bytes) = (self.mapping.address(), self.mapping.bytes());
        let mapping = Mapping::new(bytes)?;
        let clone = Region::new(Arc::clone(&self.inner), self.engine, self.mode, mapping, self.length)?;
        let to = clone.mapping.address();
        let mut done = 0;
        while done < bytes {
            // Each piece is paged out just before it is cloned, because pages paged out much
            // earlier may be back by then.
            let piece = CLONED_AT_ONCE.min(bytes - done);
            self.engine.advise(Advice::PageOut, from + done, piece);
            let end = done + piece;
            while done < end {
                let duplicated = self.engine.duplicate(from + done, to + done, end - done);
                let step = duplicated.map_err(Error::system("cloning a region"))?;
                if step == 0 {
                    // A page is on its way to a device and will be there soon.
                    std::thread::yield_now();
                    self.engine.advise(Advice::PageOut, from + done, piece.min(end - done));
                }
                done += step;
            }
        }
        Ok(clone)
    }
}
