//! Copy-on-write clones of regions.

use crate::mapping::Mapping;
use crate::{Error, Region};
use folioswap_pager::engine::advices::Advice;
use std::sync::Arc;

/// Bytes of a region that are cloned between two looks at what of it is in memory.
const CLONED_AT_ONCE: usize = 32 << 20;

impl Region {
    /// A copy-on-write clone: a region of its own with the same contents, in the same swap and fault mode. What is stored is not
    /// stored once more: both hold the same swap entries, counted, until one of them writes. So what is in memory leaves first, as by
    /// [`Region::page_out`]; what cannot leave (pinned, locked) is copied. The original stays as it is, and may be read meanwhile by any thread;
    /// of what others write to it by raw pointers meanwhile, each page is in the clone as it was at some moment of the call.
    ///
    /// Cost: that of paging out what is in memory, then 0.1 µs for each page. Dropping either frees what only it holds.
    ///
    /// # Errors
    /// [`Error::System`] without memory for the tables, [`Error::TooLarge`], [`Error::Forked`], [`Error::Closed`]. Nothing is left then.
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
            // What was paged out long before its turn may be back by then.
            let piece = CLONED_AT_ONCE.min(bytes - done);
            self.engine.advise(Advice::PageOut, from + done, piece);
            let end = done + piece;
            while done < end {
                let duplicated = self.engine.duplicate(from + done, to + done, end - done);
                let step = duplicated.map_err(Error::system("cloning a region"))?;
                if step == 0 {
                    // A page on its way to a device: it is there soon.
                    std::thread::yield_now();
                    self.engine.advise(Advice::PageOut, from + done, piece.min(end - done));
                }
                done += step;
            }
        }
        Ok(clone)
    }
}
