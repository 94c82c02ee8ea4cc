//! Regions at a given address, for a forked child that is to have a copy of its parent's region.

use crate::mapping::Mapping;
use crate::{Error, FaultMode, Region, Swap};
use folioswap_devices::PAGE_SIZE;
use std::sync::Arc;

impl Swap {
    /// Makes a region at this address, in place of the present mapping there. A forked child uses
    /// it to have a region where its parent had one, because it has inherited pointers there.
    /// `address` is a multiple of 2 MiB; `bytes` are rounded up to pages. The region is all zero,
    /// like any other.
    ///
    /// # Errors
    /// Those of [`Swap::region`]; [`Error::System`] where the address is not such a multiple.
    ///
    /// # Safety
    /// The caller owns the present mapping, and no one refers to it. It is best a reservation
    /// without access.
    ///
    /// ```
    /// let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// let bytes = 4 << 20;
    /// // SAFETY: a reservation at an address of the kernel's choice; the region takes part of it.
    /// let region = unsafe {
    ///     let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    ///     let (anywhere, reserved) = (std::ptr::null_mut(), bytes + (2 << 20));
    ///     let found = libc::mmap(anywhere, reserved, libc::PROT_NONE, flags, -1, 0) as usize;
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
        let rounded = bytes.checked_next_multiple_of(PAGE_SIZE);
        let rounded = rounded.filter(|rounded| address.checked_add(*rounded).is_some());
        let rounded = rounded.ok_or(Error::TooLarge { bytes: bytes as u64, why })?;
        let mode = FaultMode::HandlerThreads;
        // SAFETY: the caller owns the range.
        let mapping = unsafe { Mapping::new_at(address, rounded) }?;
        Region::new(Arc::clone(&self.0), self.0.engine(mode)?, mode, mapping, bytes)
    }
}
