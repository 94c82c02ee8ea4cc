//! Regions at an address that is given: for a forked child that is to have a copy of its parent's.

use crate::mapping::Mapping;
use crate::{Error, FaultMode, Region, Swap};
use std::sync::Arc;

impl Swap {
    /// Makes a region at this address, a multiple of 2 MiB, where nothing is mapped: as the one was, in the parent, whose pointers a forked child
    /// has inherited. All zero, like any other; `bytes` are rounded up to pages.
    ///
    /// # Errors
    /// As [`Swap::region`]; [`Error::System`] where something is mapped there already, or the address is not such a multiple.
    ///
    /// ```
    /// let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// let region = swap.region("4M")?;
    /// let address = region.base().as_ptr() as usize;
    /// assert!(swap.region_at(address, 4 << 20).is_err(), "it is there");
    /// drop(region);
    /// assert_eq!(swap.region_at(address, 4 << 20)?.base().as_ptr() as usize, address);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn region_at(&self, address: usize, bytes: usize) -> Result<Region, Error> {
        self.0.check_process()?;
        if bytes == 0 {
            return Err(Error::ZeroSize);
        }
        self.0.check_tables(bytes as u64)?;
        let why = "it does not end within the address space";
        let rounded = bytes.checked_next_multiple_of(crate::mapping::PAGE);
        let rounded = rounded.filter(|rounded| address.checked_add(*rounded).is_some());
        let rounded = rounded.ok_or(Error::TooLarge { bytes: bytes as u64, why })?;
        let mode = FaultMode::HandlerThreads;
        Region::new(
            Arc::clone(&self.0),
            self.0.engine(mode)?,
            mode,
            Mapping::new_at(address, rounded)?,
            bytes,
        )
    }
}
