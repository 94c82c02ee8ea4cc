//! A region: memory that may be larger than the limit.

use crate::inner::Inner;
use crate::mapping::Mapping;
use crate::pin::{Pin, Pins};
use crate::sigbus::Registration;
use crate::{Error, FaultMode, IntoBytes, gate};
use folioswap_devices::PAGE_SIZE;
use folioswap_pager::embed::managed::Command;
use folioswap_pager::engine::Engine;
use folioswap_pager::engine::advices::Advice;
use folioswap_pager::kernel::processor;
use std::fmt;
use std::ops::{Bound, Range, RangeBounds};
use std::ptr::NonNull;
use std::sync::Arc;

/// Private anonymous memory, all zero at first. The engine swaps its cold pages out as the limit
/// demands, and brings a page back when a thread touches it.
///
/// A region is memory like any other: slices of it can be sorted, shared between threads and handed
/// to system calls (see [`crate::Swap::serves_system_calls`]). It begins at a multiple of 2 MiB.
///
/// **Dropping a region** unmaps it. The compiler sees to it that no slice outlives the region.
/// Pointers from [`Region::base`] follow the rule of munmap(2): no thread may use one after the
/// drop. A thread that does, or that waits for a page at that moment, gets the page, zeroes or
/// SIGSEGV, as after munmap(2). It does not hang, and it harms no other memory unless the address
/// has been given to another mapping by then.
///
/// **A page that cannot be read back** is poisoned: its disk failed, or its bytes do not match the
/// checksum taken when they left. A thread that touches it gets SIGBUS, and `pages_poisoned` counts
/// it.
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
    /// With [`FaultMode::Sigbus`] only. Declared behind the mapping, so that it is dropped after
    /// it.
    registration: Option<Registration>,
    pub(crate) length: usize,
    pub(crate) mode: FaultMode,
    pub(crate) engine: &'static Engine,
    pub(crate) pins: Pins,
    /// Declared last, so that the engine serves the mapping until it is gone.
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

    /// Has the engine manage the mapping. All of it is zero, or managed already.
    fn manage(&mut self) -> Result<(), Error> {
        let (start, end) = (self.mapping.address(), self.mapping.address() + self.mapping.bytes());
        if self.mode == FaultMode::Sigbus {
            self.registration = Some(Registration::new(start, end, self.engine));
        }
        gate::begin(self, start, end);
        self.engine.command(Command::Manage, start, end).map_err(Error::system("having memory managed"))
    }

    /// Returns the length in bytes, as requested.
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

    /// Returns how faults on the region are served.
    ///
    /// ```
    /// let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// assert_eq!(swap.region(1)?.fault_mode(), folioswap::FaultMode::HandlerThreads);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn fault_mode(&self) -> FaultMode {
        self.mode
    }

    /// Returns whether system calls work on memory of the region that is swapped out: as
    /// [`crate::Swap::serves_system_calls`], and with [`FaultMode::Sigbus`] only by the
    /// [`Gate`](crate::Gate).
    ///
    /// ```
    /// use folioswap::{FaultMode, Gate, Swap};
    ///
    /// let swap = Swap::builder().limit("64M").sigbus().gate(Gate::Never).build()?;
    /// assert!(!swap.region_with(1, FaultMode::Sigbus)?.serves_system_calls());
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn serves_system_calls(&self) -> bool {
        self.inner.serves_system_calls(self.mode)
    }

    /// Returns the address of the first byte, for raw pointers that threads share, such as a
    /// virtual machine's memory. The caller must keep to Rust's rules for shared memory, and to the
    /// rule for dropping the region.
    ///
    /// ```
    /// let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// let region = swap.region("1M")?;
    /// // SAFETY: within the region, which is alive, and no other thread uses it.
    /// unsafe { region.base().as_ptr().add(100).write(1) };
    /// assert_eq!(region.as_slice()[100], 1);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn base(&self) -> NonNull<u8> {
        self.mapping.start()
    }

    /// Returns the address of the first byte, for reading.
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

    /// Returns the address of the first byte, for writing.
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

    /// Returns all bytes.
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

    /// Returns all bytes, for writing.
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

    /// Swaps the range out now (MADV_PAGEOUT), in whole folios where they lie within the range.
    /// Returns when the pages have left. Pages stay that are pinned, that the kernel has locked for
    /// input or output, that a fault brings back meanwhile, or that a fault of just before still
    /// fills around the page it was for.
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

    /// Says that the range is not needed for long (MADV_COLD): it leaves before anything else when
    /// memory is short.
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

    /// Says that the range is needed soon (MADV_WILLNEED): the calling thread brings it back in
    /// order, as far as there is room.
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
            unsafe { processor::read_byte(page) };
        });
        Ok(())
    }

    /// Discards the contents of the range, which reads as zeroes afterwards. Whole pages go back to
    /// the system at once, and their stored copies are freed.
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
        let first = (base + start).next_multiple_of(PAGE_SIZE) - base;
        // The rest of the last page belongs to no one.
        let last = if end == self.length {
            self.mapping.bytes()
        } else {
            (base + end) / PAGE_SIZE * PAGE_SIZE - base
        };
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

    /// Returns how many bytes of the pages of the range are in memory now.
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
        let mut pages = vec![0_u8; (end - start) / PAGE_SIZE];
        // SAFETY: mapped pages, a byte for each.
        let result = unsafe { libc::mincore(start as *mut libc::c_void, end - start, pages.as_mut_ptr()) };
        if result != 0 {
            let errno = rustix::io::Errno::from_io_error(&std::io::Error::last_os_error());
            return Err(Error::System {
                doing: "asking what is resident",
                errno: errno.unwrap_or(rustix::io::Errno::NOMEM),
            });
        }
        Ok(pages.iter().filter(|&&page| page & 1 != 0).count() * PAGE_SIZE)
    }

    /// Brings all of the range into memory, ready to be read and written, on the calling thread.
    /// Where memory is short, pages may leave again at once; [`Region::pin`] keeps them.
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

    /// Brings all of the range into memory, ready to be read and written, and keeps it there until
    /// the guard is dropped. Use it for system calls that do not wait for memory that is swapped
    /// out ([`crate::Swap::serves_system_calls`]), and for code that must not wait. Ranges may
    /// overlap.
    ///
    /// # Errors
    /// [`Error::PinTooLarge`] where more than half of the limit would be pinned;
    /// [`Error::OutOfRange`], [`Error::Forked`].
    ///
    /// ```
    /// use std::io::Read;
    ///
    /// let swap = folioswap::Swap::builder().limit("64M").build()?;
    /// let mut region = swap.region("4M")?;
    /// let mut file = std::fs::File::open("/proc/self/exe").expect("our own program");
    /// let pinned = region.pin(..4096)?;
    /// // SAFETY: within the region, and no other thread uses it now.
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

    /// Makes the region larger, to `length` bytes; the added bytes are zero. The region may move,
    /// and older pointers into it are invalid afterwards. A length that is not larger changes
    /// nothing. Cost: one system call, however much is swapped out, after pages that wait to be
    /// written are written.
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
        let bytes = length.next_multiple_of(PAGE_SIZE);
        if bytes > self.mapping.bytes() {
            gate::end(self, self.mapping.address(), self.mapping.address() + self.mapping.bytes());
            // SAFETY: borrowed exclusively; raw pointers are documented to end here.
            let grown = unsafe { self.mapping.grow(bytes) };
            self.manage()?;
            grown?;
        }
        self.length = length;
        Ok(())
    }

    /// Discards the contents of whole pages, on a best-effort basis.
    ///
    /// # Safety
    /// `start..start + bytes` are whole pages of the region, and no one relies on their contents.
    #[cfg(feature = "allocator-api2")]
    pub(crate) unsafe fn give_up(&self, start: usize, bytes: usize) {
        // SAFETY: the caller upholds the `# Safety` section.
        let _ = unsafe { self.mapping.give_up(start, bytes) };
    }

    fn advise(&self, range: impl RangeBounds<usize>, advice: Advice) -> Result<(), Error> {
        let Range { start, end } = self.pages(range)?;
        self.engine.advise(advice, start, end - start);
        Ok(())
    }

    /// Touches each page of the address range, so that it is resident and writable without a fault.
    fn touch(&self, range: Range<usize>) {
        for page in range.step_by(PAGE_SIZE) {
            // SAFETY: within the region.
            unsafe { processor::touch_byte(page) };
        }
    }

    pub(crate) fn bytes(&self, range: impl RangeBounds<usize>) -> Result<Range<usize>, Error> {
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

    /// Returns the addresses of the pages that the range touches.
    fn pages(&self, range: impl RangeBounds<usize>) -> Result<Range<usize>, Error> {
        let Range { start, end } = self.bytes(range)?;
        let base = self.mapping.address();
        if start == end {
            return Ok(base..base);
        }
        Ok((base + start) / PAGE_SIZE * PAGE_SIZE..(base + end).next_multiple_of(PAGE_SIZE))
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.mapping.is_of_this_process() {
            let (start, bytes) = (self.mapping.address(), self.mapping.bytes());
            gate::end(self, start, start + bytes);
            // Stored copies are freed while the region still owns the addresses, so that the
            // engine's accounting stays exact. The kernel waits for the engine in either call. If
            // this one fails for want of memory, munmap(2) does both.
            // SAFETY: the region is being dropped, so no one uses the memory any more.
            let _ = unsafe { self.mapping.give_up(start, bytes) };
        }
    }
}
