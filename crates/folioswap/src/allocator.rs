//! An allocator for collections that live in managed memory.

use crate::{Error, IntoBytes, Region, Swap};
use allocator_api2::alloc::{AllocError, Allocator, Layout};
use folioswap_devices::PAGE_SIZE;
use rlsf::Tlsf;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// Freed allocations of at least this size give their pages back to the system.
const GIVEN_BACK_BYTES: usize = 64 << 10;

/// Size classes by powers of two, with steps in each: blocks of up to 2^45 bytes, at most an eighth
/// too large.
type Heap = Tlsf<'static, u64, u8, 40, 8>;

/// An allocator for collections whose contents live in a region, and so within a swap's limit:
/// `allocator_api2::vec::Vec`, `hashbrown::HashMap`, and any other user of [`Allocator`]. Clones
/// share the region, which lives as long as any of them.
///
/// A freed block of 64 KiB or more gives its pages back at once; the region itself does not shrink.
/// The bookkeeping lies beside the allocations, so freeing memory that is swapped out brings a page
/// back. The allocator cannot be a `#[global_allocator]`.
///
/// ```
/// use allocator_api2::vec::Vec;
/// use folioswap::{RegionAllocator, Swap};
///
/// let swap = Swap::builder().limit("16M").build()?;
/// let allocator = RegionAllocator::new(&swap, "256M")?;
/// let mut numbers: Vec<u64, _> = Vec::new_in(allocator.clone());
/// numbers.extend(0..4_000_000);
/// assert_eq!(numbers.iter().sum::<u64>(), 4_000_000 * 3_999_999 / 2);
///
/// let mut squares = hashbrown::HashMap::new_in(allocator);
/// squares.extend((0..1000_u64).map(|number| (number, number * number)));
/// assert_eq!(squares[&999], 998_001);
/// # Ok::<(), folioswap::Error>(())
/// ```
#[derive(Clone)]
pub struct RegionAllocator(Arc<Managed>);

struct Managed {
    heap: Mutex<Heap>,
    region: Region,
}

impl fmt::Debug for RegionAllocator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("RegionAllocator").field(&self.0.region).finish()
    }
}

impl RegionAllocator {
    /// Makes an allocator that hands out at most `capacity` bytes, in a region of its own. The
    /// region takes memory only as it is used.
    ///
    /// # Errors
    /// Those of [`Swap::region`].
    ///
    /// ```
    /// use folioswap::{RegionAllocator, Swap};
    ///
    /// let swap = Swap::builder().limit("64M").build()?;
    /// let allocator = RegionAllocator::new(&swap, "1G")?;
    /// let text = allocator_api2::boxed::Box::new_in(*b"hello", allocator);
    /// assert_eq!(*text, *b"hello");
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn new(swap: &Swap, capacity: impl IntoBytes) -> Result<Self, Error> {
        let region = swap.region(capacity)?;
        let mut heap = Heap::new();
        let block = NonNull::slice_from_raw_parts(region.base(), region.len());
        // SAFETY: the region lies beside the heap and lives as long; nothing else uses it.
        unsafe { heap.insert_free_block_ptr(block) };
        Ok(RegionAllocator(Arc::new(Managed { heap: Mutex::new(heap), region })))
    }

    /// Swaps out the whole region: [`Region::page_out`].
    ///
    /// # Errors
    /// Those of [`Region::page_out`].
    ///
    /// ```
    /// use folioswap::{RegionAllocator, Swap};
    ///
    /// let swap = Swap::builder().limit("64M").build()?;
    /// let allocator = RegionAllocator::new(&swap, "16M")?;
    /// allocator.page_out()?;
    /// assert!(allocator.resident_bytes()? < 1 << 20);
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn page_out(&self) -> Result<(), Error> {
        self.0.region.page_out(..)
    }

    /// Says that the whole region is not needed for a while: [`Region::cold`].
    ///
    /// # Errors
    /// Those of [`Region::cold`].
    pub fn cold(&self) -> Result<(), Error> {
        self.0.region.cold(..)
    }

    /// Brings the whole region back, as far as there is room: [`Region::will_need`].
    ///
    /// # Errors
    /// Those of [`Region::will_need`].
    pub fn will_need(&self) -> Result<(), Error> {
        self.0.region.will_need(..)
    }

    /// Returns how many bytes of the region are resident now.
    ///
    /// # Errors
    /// Those of [`Region::resident_bytes`].
    pub fn resident_bytes(&self) -> Result<usize, Error> {
        self.0.region.resident_bytes(..)
    }

    /// Returns the most bytes that the allocator hands out, its bookkeeping included.
    pub fn capacity(&self) -> usize {
        self.0.region.len()
    }
}

// SAFETY: blocks lie in the region, which lives as long as any clone, and each is handed out once,
// under the lock.
unsafe impl Allocator for RegionAllocator {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            let dangling =
                NonNull::new(std::ptr::without_provenance_mut(layout.align())).ok_or(AllocError)?;
            return Ok(NonNull::slice_from_raw_parts(dangling, 0));
        }
        // A forked child does not have the region, and the lock may be held by a thread it does not
        // have.
        self.0.region.inner.check_process().map_err(|_| AllocError)?;
        let mut heap = self.0.heap.lock().unwrap_or_else(PoisonError::into_inner);
        let place = heap.allocate(layout).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(place, layout.size()))
    }

    unsafe fn deallocate(&self, place: NonNull<u8>, layout: Layout) {
        if layout.size() == 0 || self.0.region.inner.check_process().is_err() {
            return;
        }
        if layout.size() >= GIVEN_BACK_BYTES {
            let start = (place.as_ptr() as usize).next_multiple_of(PAGE_SIZE);
            let end = (place.as_ptr() as usize + layout.size()) / PAGE_SIZE * PAGE_SIZE;
            // SAFETY: whole pages of a block that is being freed; the heap keeps nothing there
            // until it has the block back.
            unsafe { self.0.region.give_up(start, end - start) };
        }
        let mut heap = self.0.heap.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the block came from `allocate` with this layout.
        unsafe { heap.deallocate(place, layout.align()) };
    }
}
