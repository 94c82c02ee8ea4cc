//! Collections that live in managed memory.

use crate::{Error, IntoBytes, Region, Swap};
use allocator_api2::alloc::{AllocError, Allocator, Layout};
use rlsf::Tlsf;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// Freed allocations from this size on give their pages back to the system.
const GIVEN_BACK_BYTES: usize = 64 << 10;
const PAGE: usize = 4096;

/// Size classes by powers of two, and steps within each: blocks up to 2^45 bytes, an eighth too large at most.
type Heap = Tlsf<'static, u64, u8, 40, 8>;

/// An allocator for collections whose contents live in a region, and so within a swap's limit: for `allocator_api2::vec::Vec`,
/// `hashbrown::HashMap`, and whatever else takes an [`Allocator`]. Clones share the region, which lives as long as any of them.
///
/// What is freed in pieces of 64 KiB and more is given back at once; the region itself does not shrink. Bookkeeping lies beside the
/// allocations, so that to free what has been swapped out brings a page back. Not for `#[global_allocator]`.
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
    /// An allocator that hands out at most `capacity` bytes, in a region of its own; it takes memory only as it is used.
    ///
    /// # Errors
    /// [`Swap::region`]'s.
    ///
    /// ```
    /// use folioswap::{RegionAllocator, Swap};
    ///
    /// let swap = Swap::builder().limit("64M").build()?;
    /// let allocator = RegionAllocator::new(&swap, "1G")?;
    /// let text: allocator_api2::boxed::Box<[u8; 5], _> = allocator_api2::boxed::Box::new_in(*b"hello", allocator);
    /// assert_eq!(*text, *b"hello");
    /// # Ok::<(), folioswap::Error>(())
    /// ```
    pub fn new(swap: &Swap, capacity: impl IntoBytes) -> Result<Self, Error> {
        let region = swap.region(capacity)?;
        let mut heap = Heap::new();
        let block = NonNull::slice_from_raw_parts(region.base(), region.len());
        // SAFETY: the region lives as long as the heap, beside it, and is used by nothing else.
        unsafe { heap.insert_free_block_ptr(block) };
        Ok(RegionAllocator(Arc::new(Managed { heap: Mutex::new(heap), region })))
    }

    /// Swaps out what lies in the region: [`Region::page_out`] of all of it.
    ///
    /// # Errors
    /// [`Region::page_out`]'s.
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

    /// Says that what lies in the region is not needed for a while: [`Region::cold`] of all of it.
    ///
    /// # Errors
    /// [`Region::cold`]'s.
    pub fn cold(&self) -> Result<(), Error> {
        self.0.region.cold(..)
    }

    /// Brings back what lies in the region, as far as there is room: [`Region::will_need`] of all of it.
    ///
    /// # Errors
    /// [`Region::will_need`]'s.
    pub fn will_need(&self) -> Result<(), Error> {
        self.0.region.will_need(..)
    }

    /// Bytes of the region that are resident now.
    ///
    /// # Errors
    /// [`Region::resident_bytes`]'s.
    pub fn resident_bytes(&self) -> Result<usize, Error> {
        self.0.region.resident_bytes(..)
    }

    /// Bytes that it hands out at most, its bookkeeping included.
    pub fn capacity(&self) -> usize {
        self.0.region.len()
    }
}

// SAFETY: blocks of the region, which lives as long as any clone; each is handed out once, under the lock.
unsafe impl Allocator for RegionAllocator {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            let dangling =
                NonNull::new(std::ptr::without_provenance_mut(layout.align())).ok_or(AllocError)?;
            return Ok(NonNull::slice_from_raw_parts(dangling, 0));
        }
        // A forked child has neither the region nor, perhaps, the lock.
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
            let start = (place.as_ptr() as usize).next_multiple_of(PAGE);
            let end = (place.as_ptr() as usize + layout.size()) / PAGE * PAGE;
            // SAFETY: whole pages of what is being freed: the heap keeps nothing there before it has it back.
            unsafe { self.0.region.give_up(start, end - start) };
        }
        let mut heap = self.0.heap.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: it came from `allocate` with this layout.
        unsafe { heap.deallocate(place, layout.align()) };
    }
}
