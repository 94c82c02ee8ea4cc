//! Regions at an address that is given: for a forked child that is to have a copy of its parent's.

use crate::mapping::Mapping;
use crate::{Error, FaultMode, Region, Swap};
use std::sync::Arc;

impl Swap {
    /// Makes a region at this address, a multiple of 2 MiB, instead of what is mapped there: where a region was in the parent, whose pointers a
    /// forked child has inherited. All zero, like any other; `bytes` are rounded up to pages.
    ///
    /// # Errors
    /// As [`Swap::region`]; [`Error::System`] where the address is not such a multiple.
    ///
    /// # Safety
    /// What is mapped there is the caller's, and nobody refers to it: a reservation without access, best.
    ///
    /// ```
    /// let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// let bytes = 4 << 20;
    /// // SAFETY: a reservation at an address of the system's choice, of which the region takes a part.
    /// let region = unsafe {
    ///     let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    ///     let found = libc::mmap(std::ptr::null_mut(), bytes + (2 << 20), libc::PROT_NONE, flags, -1, 0) as usize;
    ///     swap.region_at(found.next_multiple_of(2 << 20), bytes)?
    /// };
    /// assert!(region.as_slice().iter().all(|&byte| byte == 0));
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub unsafe fn region_at(&self, address: usize, bytes: usize) -> Result<Region, Error> {
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
        // SAFETY: by contract.
        let mapping = unsafe { Mapping::new_at(address, rounded) }?;
        Region::new(Arc::clone(&self.0), self.0.engine(mode)?, mode, mapping, bytes)
    }
}
