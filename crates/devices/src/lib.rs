//! Swap devices: they keep the bytes of a page, and return them or name the reason why not.
//!
//! The crate has two devices. [`Zram`] keeps pages compressed in memory that the caller supplies.
//! [`FileDevice`] keeps them in page-sized slots of a file, a block device or plain RAM. A page's
//! [`Place`] says where its bytes are now; it packs into 12 bytes, a [`Location`] word and a check
//! word.
//!
//! The crate is `no_std` and has no heap, no thread-local, no state outside the caller's memory,
//! and no libc call except those that copy and fill memory. It can therefore run in a pager thread
//! inside any process, and a forked child can continue with its copy-on-write copy at the same
//! addresses (the caller guarantees that no operation is in flight at the moment of the fork).
//!
//! | Module | Concept |
//! |---|---|
//! | [`page`] | a page, and pages that hold one repeated word |
//! | [`location`] | handle, slot, the place of a page's bytes, and the bit that pins them there |
//! | [`mod@device`] | the contract of devices with numbered slots |
//! | [`cipher`] | encryption of the pages that lie where others can read |
//! | [`checksum`] | 32 bits over the stored bytes |
//! | [`base_delta`] | a page of numbers: one base, and the bytes in which words differ |
//! | [`lz4`] | the LZ4 block format for one page |
//! | [`mod@zstd`] | the zstd format for one page |
//! | [`memory`] | the source of zram's memory |
//! | [`zram`] | the compressed object store |
//! | [`mod@file`] | the file device |
//! | [`read_ring`] | asynchronous reads of the file device |
//! | `create` | making the swap file (feature `create`, std) |
//! | `header` | the header of a prepared swap file or block device (feature `create`) |
//! | `signature` | the owner of the data on a device (feature `create`) |
//! | `prepared` | making and opening prepared devices (feature `create`, std) |
#![cfg_attr(not(any(test, feature = "create")), no_std)]

#[cfg(not(all(target_pointer_width = "64", target_endian = "little")))]
compile_error!("folioswap-devices packs 64-bit little-endian words");

pub mod base_delta;
pub mod checksum;
pub mod cipher;
#[cfg(feature = "create")]
pub mod create;
pub mod device;
pub mod file;
#[cfg(feature = "create")]
pub mod header;
pub mod location;
mod lock;
pub mod lz4;
pub mod memory;
pub mod page;
#[cfg(feature = "create")]
pub mod prepared;
pub mod read_ring;
#[cfg(feature = "create")]
pub mod signature;
pub mod zram;
pub mod zstd;

pub use checksum::Checksum;
pub use cipher::PageCipher;
pub use device::{Characteristics, Device, Orders, Synchrony};
pub use file::{FileDevice, FileError, Medium};
pub use location::{Codec, FileSlot, Handle, KeyNumber, Location, LocationCell, Owner, Place, StoredLen};
pub use memory::{PageMemory, Prefault};
pub use page::{OtherPageSize, PAGE_SIZE, Page, check_page_size};
pub use zram::{
    CompactReport, FreeError, IncompressiblePolicy, Invalid, LoadError, MmStat, Recompressed, Relocation,
    Scratch, StoreError, StoreOptions, Stored, Verdict, Wrong, Zram,
};
