//! One object: read, write, allocate, truncate, punch.

use super::ShmemError;
use super::space::Inner;
use folioswap_devices::PAGE_SIZE;
use folioswap_shmem::Allocation;
use std::cell::Cell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// The folios in which an object's new pages come (tmpfs `huge=`): the largest that are naturally
/// aligned and lie within the range that a call writes or allocates.
///
/// ```
/// use folioswap::{HugePolicy, ShmemSpace};
///
/// let space = ShmemSpace::builder().limit("64M").build()?;
/// let object = space.object_with(HugePolicy::WithinSize)?;
/// # drop(object);
/// # Ok::<(), folioswap::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HugePolicy {
    /// Single pages.
    #[default]
    Never,
    /// Large folios.
    Always,
    /// Large folios that do not reach beyond the object's size (in pages).
    WithinSize,
}

thread_local! {
    /// Whether bytes are lent to the calling thread.
    static LENT: Cell<bool> = const { Cell::new(false) };
}

/// Lends bytes to the calling thread until dropped.
struct Lending {
    /// Whether an outer call had lent bytes already.
    before: bool,
}

impl Lending {
    fn new() -> Self {
        Lending { before: LENT.replace(true) }
    }
}

impl Drop for Lending {
    fn drop(&mut self) {
        LENT.set(self.before);
    }
}

/// Contents by offset, of up to 2^63 - 1 bytes, which swap within the limit of their
/// [`crate::ShmemSpace`]: a file without a name, in memory. Bytes that were never written read as
/// zeroes and take no memory. Dropping the object frees all of it.
///
/// Any number of threads may use an object at once. Reads and writes of one page exclude each
/// other; a longer read or write is not atomic.
///
/// ```
/// use folioswap::ShmemSpace;
///
/// let space = ShmemSpace::builder().limit("16M").build()?;
/// let object = space.object()?;
/// object.write(1 << 30, b"content")?;
/// let mut bytes = [1; 8];
/// assert_eq!(object.read((1 << 30) - 1, &mut bytes)?, 8);
/// assert_eq!(&bytes, b"\0content");
/// assert_eq!(object.content_bytes(), 4096);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ShmemObject {
    object: ManuallyDrop<folioswap_shmem::ShmemObject>,
    space: Arc<Inner>,
}

impl fmt::Debug for ShmemObject {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.object.fmt(formatter)
    }
}

impl Drop for ShmemObject {
    fn drop(&mut self) {
        // A forked child leaves the object as it is, because threads that the child does not have
        // may hold its locks.
        if self.space.is_of_this_process() {
            // SAFETY: dropped once, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.object) };
        }
    }
}

impl ShmemObject {
    pub(super) fn new(space: Arc<Inner>, huge: HugePolicy) -> Self {
        let huge = match huge {
            HugePolicy::Never => folioswap_shmem::HugePolicy::Never,
            HugePolicy::Always => folioswap_shmem::HugePolicy::Always,
            HugePolicy::WithinSize => folioswap_shmem::HugePolicy::WithinSize,
        };
        let object = folioswap_shmem::ShmemObject::new(&space.space, huge);
        ShmemObject { object: ManuallyDrop::new(object), space }
    }

    fn to_read(&self) -> Result<&folioswap_shmem::ShmemObject, ShmemError> {
        if self.space.is_of_this_process() { Ok(&self.object) } else { Err(ShmemError::Forked) }
    }

    fn to_change(&self) -> Result<&folioswap_shmem::ShmemObject, ShmemError> {
        if LENT.get() { Err(ShmemError::Lent) } else { self.to_read() }
    }

    /// Returns the size in bytes: the end of the last write, or the size set by
    /// [`ShmemObject::set_size`].
    ///
    /// ```
    /// # let space = folioswap::ShmemSpace::builder().limit("8M").build()?;
    /// let object = space.object()?;
    /// object.write(100, b"x")?;
    /// assert_eq!(object.size(), 101);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn size(&self) -> u64 {
        self.object.size()
    }

    /// Returns the bytes of content, resident or swapped out, in whole pages (`st_blocks` times
    /// 512).
    ///
    /// ```
    /// # let space = folioswap::ShmemSpace::builder().limit("8M").build()?;
    /// let object = space.object()?;
    /// object.write(10 << 20, b"x")?;
    /// assert_eq!(object.content_bytes(), 4096);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn content_bytes(&self) -> u64 {
        self.object.pages() * PAGE_SIZE as u64
    }

    /// Copies bytes from `offset` on into `into`. Returns how many: fewer at the object's end.
    /// Holes read as zeroes.
    ///
    /// # Errors
    /// [`ShmemError::Io`]; [`ShmemError::NoSpace`] where a page is swapped out and there is no room
    /// to bring it back; [`ShmemError::Forked`].
    ///
    /// ```
    /// # let space = folioswap::ShmemSpace::builder().limit("8M").build()?;
    /// let object = space.object()?;
    /// object.write(0, b"content")?;
    /// let mut bytes = [0; 100];
    /// assert_eq!(object.read(3, &mut bytes)?, 4);
    /// assert_eq!(&bytes[..4], b"tent");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize, ShmemError> {
        self.to_read()?.read(offset, into).map_err(ShmemError::of)
    }

    /// Lends up to `length` bytes from `offset` on to `lend`, piece by piece, without a copy.
    /// Returns how many. No one writes to a piece while `lend` has it, so other threads wait:
    /// `lend` should be brief. Meanwhile this thread cannot change any object
    /// ([`ShmemError::Lent`]).
    ///
    /// # Errors
    /// Those of [`ShmemObject::read`]; the pieces lent before the error are valid.
    ///
    /// ```
    /// # let space = folioswap::ShmemSpace::builder().limit("8M").build()?;
    /// let object = space.object()?;
    /// object.write(0, &vec![3; 1 << 20])?;
    /// let mut sum = 0;
    /// let add = |piece: &[u8]| sum += piece.iter().map(|&byte| u64::from(byte)).sum::<u64>();
    /// object.read_with(0, 1 << 20, add)?;
    /// assert_eq!(sum, 3 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_with(
        &self,
        offset: u64,
        length: usize,
        lend: impl FnMut(&[u8]),
    ) -> Result<usize, ShmemError> {
        let object = self.to_read()?;
        let _lending = Lending::new();
        object.read_with(offset, length, lend).map_err(ShmemError::of)
    }

    /// Copies `bytes` to `offset`. The object grows if they end behind its end. Returns how many
    /// were written: fewer only where space ran out on the way.
    ///
    /// # Errors
    /// Any [`ShmemError`]; nothing was written then.
    ///
    /// ```
    /// # let space = folioswap::ShmemSpace::builder().limit("8M").build()?;
    /// let object = space.object()?;
    /// assert_eq!(object.write(5, b"content")?, 7);
    /// assert_eq!(object.size(), 12);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<usize, ShmemError> {
        self.to_change()?.write(offset, bytes).map_err(ShmemError::of)
    }

    /// Sets the size (ftruncate(2)). Content behind a smaller size is freed, and reads as zeroes if
    /// the object grows again.
    ///
    /// # Errors
    /// Any [`ShmemError`], where the page of the new end cannot come back from swap. Nothing is
    /// changed then.
    ///
    /// ```
    /// # let space = folioswap::ShmemSpace::builder().limit("8M").build()?;
    /// let object = space.object()?;
    /// object.write(0, b"content")?;
    /// object.set_size(3)?;
    /// object.set_size(5)?;
    /// let mut bytes = [1; 9];
    /// assert_eq!(object.read(0, &mut bytes)?, 5);
    /// assert_eq!(&bytes[..5], b"con\0\0");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_size(&self, size: u64) -> Result<(), ShmemError> {
        self.to_change()?.set_size(size).map_err(ShmemError::of)
    }

    /// Frees the content of a range of bytes (fallocate(2) with FALLOC_FL_PUNCH_HOLE), which reads
    /// as zeroes afterwards. The size stays.
    ///
    /// # Errors
    /// Those of [`ShmemObject::set_size`], for the pages at both ends.
    ///
    /// ```
    /// # let space = folioswap::ShmemSpace::builder().limit("8M").build()?;
    /// let object = space.object()?;
    /// object.write(0, &vec![1; 1 << 20])?;
    /// object.punch_hole(4096, 1 << 19)?;
    /// assert_eq!(object.content_bytes(), 1 << 19);
    /// assert_eq!(object.size(), 1 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn punch_hole(&self, offset: u64, length: u64) -> Result<(), ShmemError> {
        self.to_change()?.punch_hole(offset, length).map_err(ShmemError::of)
    }

    /// Allocates every page of a range of bytes that has none (posix_fallocate(3)). New pages are
    /// zero, and the size grows to the end of the range.
    ///
    /// # Errors
    /// Any [`ShmemError`]; the new pages are freed then, and the size is as before.
    ///
    /// ```
    /// # let space = folioswap::ShmemSpace::builder().limit("8M").build()?;
    /// let object = space.object()?;
    /// object.allocate(0, 10_000)?;
    /// assert_eq!((object.size(), object.content_bytes()), (10_000, 12_288));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn allocate(&self, offset: u64, length: u64) -> Result<(), ShmemError> {
        self.to_change()?.allocate(offset, length, Allocation::Extend).map_err(ShmemError::of)
    }

    /// Returns the first offset at or behind `offset` with content (lseek(2) with SEEK_DATA).
    /// `None`: there is none before the end.
    ///
    /// ```
    /// # let space = folioswap::ShmemSpace::builder().limit("8M").build()?;
    /// let object = space.object()?;
    /// object.write(100_000, b"x")?;
    /// assert_eq!(object.seek_data(0)?, Some(98_304));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ShmemError::Forked`].
    pub fn seek_data(&self, offset: u64) -> Result<Option<u64>, ShmemError> {
        Ok(self.to_read()?.seek_data(offset))
    }

    /// Returns the first offset at or behind `offset` that lies in a hole (lseek(2) with
    /// SEEK_HOLE); the end counts as one. `None`: `offset` is not before the end.
    ///
    /// ```
    /// # let space = folioswap::ShmemSpace::builder().limit("8M").build()?;
    /// let object = space.object()?;
    /// object.write(0, b"x")?;
    /// object.set_size(10_000)?;
    /// assert_eq!(object.seek_hole(0)?, Some(4096));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ShmemError::Forked`].
    pub fn seek_hole(&self, offset: u64) -> Result<Option<u64>, ShmemError> {
        Ok(self.to_read()?.seek_hole(offset))
    }

    /// Says that the object is not needed for long: its resident folios leave now (MADV_PAGEOUT).
    /// Returns the bytes that left; folios for which swap has no room stay.
    ///
    /// # Errors
    /// [`ShmemError::Forked`], [`ShmemError::Lent`].
    ///
    /// ```
    /// # let space = folioswap::ShmemSpace::builder().limit("8M").build()?;
    /// let object = space.object()?;
    /// object.write(0, &vec![1; 1 << 20])?;
    /// assert_eq!(object.page_out()?, 1 << 20);
    /// assert_eq!(space.statistics()?.resident_bytes(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn page_out(&self) -> Result<u64, ShmemError> {
        Ok(self.to_change()?.page_out() * PAGE_SIZE as u64)
    }
}
