//! An open shared device: a file whose descriptor is here, or a network device.

use core::ptr::NonNull;
use folioswap_devices::read_ring::ReadRing;
use folioswap_devices::{FileDevice, FileError, FileSlot, Orders, PAGE_SIZE};
use folioswap_group::swap_link::DATA_MAX;
use folioswap_nbd::link::LinkDevice;
use rustix::io::Errno;

/// A shared device, open.
#[derive(Clone, Copy)]
pub(crate) enum OpenDevice<'d> {
    /// The slots are those of a file.
    File(FileDevice<'d>),
    /// The slots are read and written over a link.
    Link(LinkDevice<'d>),
}

impl OpenDevice<'_> {
    /// As [`FileDevice::write`].
    pub(crate) fn write(self, slot: FileSlot, pages: &[u8]) -> Result<(), FileError> {
        self.write_parts(slot, &[pages])
    }

    /// As [`FileDevice::write_parts`]; on a network device no part has more than [`DATA_MAX`]
    /// bytes.
    pub(crate) fn write_parts(self, slot: FileSlot, parts: &[&[u8]]) -> Result<(), FileError> {
        match self {
            OpenDevice::File(device) => device.write_parts(slot, parts),
            OpenDevice::Link(device) => device.write(slot, parts),
        }
    }

    /// The same device for the parts of a run of so many pages from `slot` on, which it takes as a
    /// whole.
    ///
    /// # Errors
    /// [`FileError::OrderNotTaken`].
    pub(crate) fn taking_run(self, slot: FileSlot, pages: usize) -> Result<Self, FileError> {
        match self {
            OpenDevice::File(device) if !device.takes_run(pages) => {
                Err(FileError::OrderNotTaken { slot, pages })
            }
            OpenDevice::File(device) => Ok(OpenDevice::File(device.taking(Orders::ALL))),
            OpenDevice::Link(_) => Ok(self),
        }
    }

    /// As [`FileDevice::read`].
    pub(crate) fn read(self, slot: FileSlot, pages: &mut [u8]) -> Result<(), FileError> {
        match self {
            OpenDevice::File(device) => device.read(slot, pages),
            OpenDevice::Link(device) => device.read(slot, pages),
        }
    }

    /// As [`ReadRing::begin`]. A network device has as many tags as
    /// [`READS_MAX`](folioswap_nbd::link::READS_MAX).
    ///
    /// # Safety
    /// [`ReadRing::begin`]'s.
    pub(crate) unsafe fn begin_read(
        self,
        ring: &mut ReadRing,
        slot: FileSlot,
        pages: NonNull<u8>,
        bytes: usize,
        tag: u64,
    ) -> Result<(), Errno> {
        debug_assert!(bytes.is_multiple_of(PAGE_SIZE) && bytes <= DATA_MAX);
        // SAFETY: the caller's.
        unsafe {
            match self {
                OpenDevice::File(device) => ring.begin(device, slot, pages, bytes, tag),
                OpenDevice::Link(device) => device.begin_read(ring, slot, pages, bytes, tag),
            }
        }
    }
}
