//! A region: memory that may be larger than the limit.

use crate::inner::Inner;
use crate::mapping::{Mapping, PAGE};
use crate::pin::{Pin, Pins};
use crate::sigbus::Registration;
use crate::{Error, FaultMode, IntoBytes, touch};
use folioswap_pager::embed::managed::Command;
use folioswap_pager::engine::Engine;
use folioswap_pager::engine::advices::Advice;
use std::fmt;
use std::ops::{Bound, Range, RangeBounds};
use std::ptr::NonNull;
use std::sync::Arc;

/// Private anonymous memory that is swapped out as the limit demands, and comes back when it is touched. All zero at first.
///
/// It is memory like any other: slices of it can be sorted, shared between threads, handed to system calls (see
/// [`crate::Swap::serves_system_calls`]). It begins at a multiple of 2 MiB.
///
/// **Dropping it** unmaps it. Slices cannot outlive it: the compiler sees to that. For the pointers of [`Region::base`] the rule is that of
/// munmap(2): no thread may use one from then on. One that does, or that waits for a page at that very moment, gets the page or SIGSEGV, as
/// after munmap(2); it does not hang, and no other memory is harmed unless the address has been given to somebody else by then.
///
/// **A page that cannot be read back** (a disk that fails, bytes that do not have the checksum that they left with) is poisoned: who touches
/// it gets SIGBUS, and `pages_poisoned` counts it.
///
/// ```
/// let swap = folioswap::Swap::builder().limit("16M").build()?;
/// let mut region = swap.region("48M")?;
/// for (number, page) in region.as_mut_slice().chunks_mut(4096).enumerate() {
///     page[..8].copy_from_slice(&number.to_ne_bytes());
/// }
/// for (number, page) in region.as_slice().chunks(4096).enumerate() {
///     assert_eq!(page[..8], number.to_ne_bytes());
/// }
/// # Ok::<(), folioswap::Error>(())
/// ```
pub struct Region {
    pub(crate) mapping: Mapping,
    /// With [`FaultMode::Sigbus`]. Behind the mapping, which goes first.
    registration: Option<Registration>,
    pub(crate) length: usize,
    pub(crate) mode: FaultMode,
    pub(crate) engine: &'static Engine,
    pub(crate) pins: Pins,
    /// Last: the engine serves the mapping until it is gone.
    pub(crate) inner: Arc<Inner>,
}

impl fmt::Debug for Region {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Region")
            .field("base", &self.base())
            .field("len", &self.length)
            .finish_non_exhaustive()
    }
}

impl Region {
    pub(crate) fn new(
        inner: Arc<Inner>,
        engine: &'static Engine,
        mode: FaultMode,
        mapping: Mapping,
        length: usize,
    ) -> Result<Self, Error> {
        let mut region =
            Region { mapping, registration: None, length, mode, engine, pins: Pins::default(), inner };
        region.manage()?;
        Ok(region)
    }

    /// Has the engine look after the mapping, all of which is zero or managed already.
    fn manage(&mut self) -> Result<(), Error> {
        let (start, end) = (self.mapping.address(), self.mapping.address() + self.mapping.bytes());
        if self.mode == FaultMode::Sigbus {
            self.registration = Some(Registration::new(start, end, self.engine));
        }
        self.engine.command(Command::Manage, start, end).map_err(Error::system("having memory managed"))
    }

    /// Its length in bytes, as it was asked for.
    ///
    /// ```
    /// let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// assert_eq!(swap.region(10)?.len(), 10);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    #[allow(clippy::len_without_is_empty, reason = "a region has at least one byte")]
    pub fn len(&self) -> usize {
        self.length
    }

    /// How its faults are served.
    ///
    /// ```
    /// let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// assert_eq!(swap.region(1)?.fault_mode(), folioswap::FaultMode::HandlerThreads);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn fault_mode(&self) -> FaultMode {
        self.mode
    }

    /// Do system calls work on what is away of it? As [`crate::Swap::serves_system_calls`]; never with [`FaultMode::Sigbus`].
    ///
    /// ```
    /// use folioswap::{FaultMode, Swap};
    ///
    /// let swap = Swap::builder().limit("64M").sigbus().build()?;
    /// assert!(!swap.region_with(1, FaultMode::Sigbus)?.serves_system_calls());
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn serves_system_calls(&self) -> bool {
        self.mode == FaultMode::HandlerThreads && self.inner.serves_system_calls()
    }

    /// Its first byte, for raw pointers that threads share (a virtual machine's memory). Whoever uses it keeps to Rust's rules for shared
    /// memory, and to the rule for dropping the region.
    ///
    /// ```
    /// let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// let region = swap.region("1M")?;
    /// // SAFETY: within the region, which is alive, and nobody else uses it.
    /// unsafe { region.base().as_ptr().add(100).write(1) };
    /// assert_eq!(region.as_slice()[100], 1);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn base(&self) -> NonNull<u8> {
        self.mapping.start()
    }

    /// Its first byte, to be read.
    ///
    /// ```
    /// let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// let region = swap.region(1)?;
    /// assert_eq!(region.as_ptr(), region.as_slice().as_ptr());
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn as_ptr(&self) -> *const u8 {
        self.base().as_ptr()
    }

    /// Its first byte, to be written.
    ///
    /// ```
    /// let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// let mut region = swap.region(1)?;
    /// // SAFETY: its only byte.
    /// unsafe { region.as_mut_ptr().write(3) };
    /// assert_eq!(region.as_slice(), [3]);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.base().as_ptr()
    }

    /// All of it.
    ///
    /// ```
    /// let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// assert_eq!(swap.region(3)?.as_slice(), [0, 0, 0]);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: mapped and initialised (zeroes) as long as the region lives.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.length) }
    }

    /// All of it, to be written.
    ///
    /// ```
    /// let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// let mut region = swap.region(3)?;
    /// region.as_mut_slice()[1] = 5;
    /// assert_eq!(region.as_slice(), [0, 5, 0]);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above; borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr(), self.length) }
    }

    /// The range is not needed for long: its pages leave now, whole folios where they lie in it. Returns when they have, but for those that
    /// are pinned, or locked by the system for input and output, and what a fault is bringing meanwhile, or filling around the page that was
    /// touched last.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Forked`].
    ///
    /// ```
    /// let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// let mut region = swap.region("4M")?;
    /// region.as_mut_slice().fill(1);
    /// region.page_out(..)?;
    /// assert!(region.resident_bytes(..)? < 1 << 20);
    /// assert_eq!(region.as_slice()[4096], 1);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn page_out(&self, range: impl RangeBounds<usize>) -> Result<(), Error> {
        self.advise(range, Advice::PageOut)
    }

    /// The range is not needed for long: it leaves before anything else when memory is short.
    ///
    /// # Errors
    /// As [`Region::page_out`].
    ///
    /// ```
    /// let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// let region = swap.region("4M")?;
    /// region.cold(1 << 20..2 << 20)?;
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn cold(&self, range: impl RangeBounds<usize>) -> Result<(), Error> {
        self.advise(range, Advice::Cold)
    }

    /// The range is needed soon: it is brought back by the calling thread, in order, as far as there is room.
    ///
    /// # Errors
    /// As [`Region::page_out`].
    ///
    /// ```
    /// let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// let mut region = swap.region("4M")?;
    /// region.as_mut_slice().fill(1);
    /// region.page_out(..)?;
    /// region.will_need(..)?;
    /// assert_eq!(region.resident_bytes(..)?, 4 << 20);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn will_need(&self, range: impl RangeBounds<usize>) -> Result<(), Error> {
        let Range { start, end } = self.pages(range)?;
        self.engine.for_pages_away(start, end, |page| {
            // SAFETY: within the region.
            unsafe { touch::read(page) };
        });
        Ok(())
    }

    /// The contents of the range are given up: it reads as zeroes. Whole pages go back to the system at once, and what was stored of them is
    /// freed.
    ///
    /// # Errors
    /// As [`Region::page_out`].
    ///
    /// ```
    /// let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// let mut region = swap.region(10_000)?;
    /// region.as_mut_slice().fill(1);
    /// region.dont_need(1..9_999)?;
    /// assert_eq!(region.as_slice()[0], 1);
    /// assert!(region.as_slice()[1..9_999].iter().all(|&byte| byte == 0));
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn dont_need(&mut self, range: impl RangeBounds<usize>) -> Result<(), Error> {
        let Range { start, end } = self.bytes(range)?;
        let base = self.mapping.address();
        let first = (base + start).next_multiple_of(PAGE) - base;
        // What follows the last byte is nobody's.
        let last = if end == self.length { self.mapping.bytes() } else { (base + end) / PAGE * PAGE - base };
        if first >= last {
            self.as_mut_slice()[start..end].fill(0);
            return Ok(());
        }
        // SAFETY: whole pages of the region, which is borrowed exclusively.
        unsafe { self.mapping.give_up(base + first, last - first) }?;
        let length = self.length;
        let bytes = self.as_mut_slice();
        bytes[start..first.min(end)].fill(0);
        bytes[last.min(length).max(start)..end.max(last.min(length))].fill(0);
        Ok(())
    }

    /// Bytes of the range's pages that are in memory now.
    ///
    /// # Errors
    /// As [`Region::page_out`].
    ///
    /// ```
    /// let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// let region = swap.region("4M")?;
    /// assert_eq!(region.resident_bytes(..)?, 0);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn resident_bytes(&self, range: impl RangeBounds<usize>) -> Result<usize, Error> {
        let Range { start, end } = self.pages(range)?;
        let mut pages = vec![0_u8; (end - start) / PAGE];
        // SAFETY: mapped pages, a byte for each.
        let result = unsafe { libc::mincore(start as *mut libc::c_void, end - start, pages.as_mut_ptr()) };
        if result != 0 {
            let errno = rustix::io::Errno::from_io_error(&std::io::Error::last_os_error());
            return Err(Error::System {
                doing: "asking what is resident",
                errno: errno.unwrap_or(rustix::io::Errno::NOMEM),
            });
        }
        Ok(pages.iter().filter(|&&page| page & 1 != 0).count() * PAGE)
    }

    /// Brings all of the range into memory, ready to be read and written, by the calling thread. It may leave again at once where memory is
    /// short: [`Region::pin`] keeps it.
    ///
    /// # Errors
    /// As [`Region::page_out`].
    ///
    /// ```
    /// let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// let region = swap.region("4M")?;
    /// region.populate(..1 << 20)?;
    /// assert!(region.resident_bytes(..)? >= 1 << 20);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn populate(&self, range: impl RangeBounds<usize>) -> Result<(), Error> {
        let range = self.pages(range)?;
        self.touch(range);
        Ok(())
    }

    /// Brings all of the range into memory, ready to be read and written, and keeps it there until the guard is dropped: for system calls where
    /// they do not wait for what is away ([`crate::Swap::serves_system_calls`]), and for what must not wait. Ranges may overlap.
    ///
    /// # Errors
    /// [`Error::PinTooLarge`]: with it more than half of the limit would be pinned; [`Error::OutOfRange`], [`Error::Forked`].
    ///
    /// ```
    /// use std::io::Read;
    ///
    /// let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// let mut region = swap.region("4M")?;
    /// let mut file = std::fs::File::open("/proc/self/exe").expect("our own program");
    /// let pinned = region.pin(..4096)?;
    /// // SAFETY: within the region, and nobody else uses it now.
    /// let page = unsafe { std::slice::from_raw_parts_mut(region.base().as_ptr(), 4096) };
    /// file.read_exact(page).expect("a page of it");
    /// drop(pinned);
    /// assert_eq!(&region.as_slice()[1..4], b"ELF");
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn pin(&self, range: impl RangeBounds<usize>) -> Result<Pin<'_>, Error> {
        let range = self.pages(range)?;
        let pin = Pin::new(self, range.clone())?;
        self.touch(range);
        Ok(pin)
    }

    /// Makes the region larger, to `length` bytes; what is new is zero. It may move: pointers of before are not valid afterwards. A length that is
    /// not larger changes nothing. Cost: a system call, however much is swapped out, and what waits to be written is written first.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::System`], [`Error::Forked`].
    ///
    /// ```
    /// let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// let mut region = swap.region(5)?;
    /// region.as_mut_slice().fill(1);
    /// region.grow("8M")?;
    /// assert_eq!(region.len(), 8 << 20);
    /// assert_eq!(region.as_slice()[..6], [1, 1, 1, 1, 1, 0]);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn grow(&mut self, length: impl IntoBytes) -> Result<(), Error> {
        let length = length.into_bytes()?;
        self.inner.check_process()?;
        if length <= self.length as u64 {
            return Ok(());
        }
        if length >= 1 << 46 {
            return Err(Error::TooLarge {
                bytes: length,
                why: "an address space has 128 TiB: ask for what will be used",
            });
        }
        self.inner.check_tables(length)?;
        let length = length as usize;
        let bytes = length.next_multiple_of(PAGE);
        if bytes > self.mapping.bytes() {
            // SAFETY: borrowed exclusively; raw pointers are documented to end here.
            let grown = unsafe { self.mapping.grow(bytes) };
            self.manage()?;
            grown?;
        }
        self.length = length;
        Ok(())
    }

    /// Gives whole pages up, best effort.
    ///
    /// # Safety
    /// `start..start + bytes` are whole pages of the region, and nobody relies on what they hold.
    #[cfg(feature = "allocator-api2")]
    pub(crate) unsafe fn give_up(&self, start: usize, bytes: usize) {
        // SAFETY: by contract.
        let _ = unsafe { self.mapping.give_up(start, bytes) };
    }

    fn advise(&self, range: impl RangeBounds<usize>, advice: Advice) -> Result<(), Error> {
        let Range { start, end } = self.pages(range)?;
        self.engine.advise(advice, start, end - start);
        Ok(())
    }

    /// Touches each page of the addresses so that it is there, and writable without a further fault.
    fn touch(&self, range: Range<usize>) {
        for page in range.step_by(PAGE) {
            // SAFETY: within the region.
            unsafe { touch::write(page) };
        }
    }

    fn bytes(&self, range: impl RangeBounds<usize>) -> Result<Range<usize>, Error> {
        self.inner.check_process()?;
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => self.length,
        };
        if start > end || end > self.length {
            return Err(Error::OutOfRange { start, end, length: self.length });
        }
        Ok(start..end)
    }

    /// The addresses of the pages that the range touches.
    fn pages(&self, range: impl RangeBounds<usize>) -> Result<Range<usize>, Error> {
        let Range { start, end } = self.bytes(range)?;
        let base = self.mapping.address();
        if start == end {
            return Ok(base..base);
        }
        Ok((base + start) / PAGE * PAGE..(base + end).next_multiple_of(PAGE))
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.mapping.is_of_this_process() {
            // What is stored is freed while the addresses are still ours, so that the engine's account stays exact. The kernel waits for the
            // engine in either call. Without memory for the first, the second does both.
            // SAFETY: nobody uses it any more.
            let _ = unsafe { self.mapping.give_up(self.mapping.address(), self.mapping.bytes()) };
        }
    }
}
