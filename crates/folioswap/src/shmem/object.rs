//! One object: read, write, allocate, truncate, punch.

use super::ShmemError;
use super::space::Inner;
use folioswap_shmem::Allocation;
use std::cell::Cell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// Which folios an object's new pages come in (tmpfs `huge=`): the largest that lie naturally aligned within what a call writes or allocates.
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
    /// Bytes are lent to the calling thread.
    static LENT: Cell<bool> = const { Cell::new(false) };
}

/// Bytes are lent to the calling thread as long as this lives.
struct Lending {
    /// They were already, by a call around this one.
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

/// Contents by offset, of any size up to 2^63 - 1 bytes, which swap within the limit of their [`crate::ShmemSpace`]: a file without a name, in
/// memory. What was never written reads as zeroes, and takes no memory. Dropping it frees all of it.
///
/// Any number of threads may use it at once. Reads and writes of one page exclude each other; a longer read or write is not one step for
/// others.
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
        // A forked child leaves it as it is: locks may be held by threads that the child has not.
        if self.space.is_of_this_process() {
            // SAFETY: dropped once, and used no more.
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

    /// Its size, in bytes: the end of what was written, or what [`ShmemObject::set_size`] said.
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

    /// What of it is there, resident or swapped out, in bytes: whole pages (`st_blocks` times 512).
    ///
    /// ```
    /// # let space = folioswap::ShmemSpace::builder().limit("8M").build()?;
    /// let object = space.object()?;
    /// object.write(10 << 20, b"x")?;
    /// assert_eq!(object.content_bytes(), 4096);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn content_bytes(&self) -> u64 {
        self.object.pages() * 4096
    }

    /// Copies bytes from `offset` on into `into`; returns how many: fewer at the object's end. Holes are zeroes.
    ///
    /// # Errors
    /// [`ShmemError::Io`]; [`ShmemError::NoSpace`] when a page is swapped out and there is no room to bring it back; [`ShmemError::Forked`].
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

    /// Lends the bytes from `offset` on, up to `length` of them, piece by piece, without a copy; returns how many. Nobody writes to a piece
    /// while `lend` has it; meanwhile this thread cannot change any object ([`ShmemError::Lent`]), and others wait: it should be brief.
    ///
    /// # Errors
    /// As [`ShmemObject::read`]; what was lent before the error is right.
    ///
    /// ```
    /// # let space = folioswap::ShmemSpace::builder().limit("8M").build()?;
    /// let object = space.object()?;
    /// object.write(0, &vec![3; 1 << 20])?;
    /// let mut sum = 0;
    /// object.read_with(0, 1 << 20, |piece| sum += piece.iter().map(|&byte| u64::from(byte)).sum::<u64>())?;
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

    /// Copies `bytes` to `offset`; the object grows if they end behind its end. Returns how many were written: fewer only where space ran
    /// out on the way.
    ///
    /// # Errors
    /// [`ShmemError`]; nothing was written then.
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

    /// Sets the size (ftruncate(2)). What lies behind a smaller one is freed, and reads as zeroes if the object grows again.
    ///
    /// # Errors
    /// [`ShmemError`] when the page in which the new end lies cannot come back from swap; nothing is changed then.
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

    /// Frees what lies in a range of bytes (fallocate(2) with FALLOC_FL_PUNCH_HOLE): it reads as zeroes from now on. The size stays.
    ///
    /// # Errors
    /// As [`ShmemObject::set_size`], for the pages at both ends.
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

    /// Makes sure that every page of a range of bytes is there (posix_fallocate(3)); new ones are zeroes, and the size grows to the end of the
    /// range.
    ///
    /// # Errors
    /// [`ShmemError`]; what it had made is freed again, and the size is as before.
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

    /// The first offset at or behind `offset` with content (lseek(2) with SEEK_DATA); `None`: there is none before the end.
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

    /// The first offset at or behind `offset` in a hole (lseek(2) with SEEK_HOLE); the end is one. `None`: `offset` is not before the end.
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

    /// It is not needed for long: its resident folios leave now (MADV_PAGEOUT). Returns the bytes that left; what finds no place stays.
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
        Ok(self.to_change()?.page_out() * 4096)
    }
}
