//! The engine's own page table: managed address -> page word, two levels of directories above
//! blocks of 2 MiB.
//!
//! All of it lives in memory that the caller supplies ([`Memory`]) and is found by address, so that
//! a forked child's copy-on-write copy is at once a valid table of its own.

use crate::history::History;
use crate::lock::SpinLock;
use crate::memory::Memory;
use crate::page::PageWord;
use crate::units::{ADDRESS_BITS, ADDRESS_END, BLOCK_PAGES, BlockAddr, PageInBlock};
use core::cell::UnsafeCell;
use core::ops::ControlFlow;
use core::ptr::null_mut;
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU64,
    Ordering::{AcqRel, Acquire, Release},
};

const DIRECTORY_BITS: u32 = 13;
const DIRECTORY: usize = 1 << DIRECTORY_BITS;
/// Entries of the root directory.
const ROOT: usize = 1 << (ADDRESS_BITS - DIRECTORY_BITS - 21);

/// The state of 2 MiB of managed addresses. Cost: 4 KiB of words and a header, rounded up to a page
/// pair per 31 blocks by the pool.
#[repr(C, align(64))]
pub struct Block {
    words: [AtomicU64; BLOCK_PAGES],
    /// The recent faults of the block.
    pub history: History,
    /// How often pages that came back for a read were written soon after (saturating; see the
    /// pager's clean copies).
    pub history_rewrites: AtomicU8,
    /// Whether the block left as one huge page of the kernel's and nothing in it was touched since.
    /// Then the kernel has no page table there, and a huge page that comes back stays one. A hint.
    pub left_huge: AtomicBool,
    next_free: UnsafeCell<*mut Block>,
}

// SAFETY: `next_free` is used only while the block is on the free list, under the pool's lock.
unsafe impl Sync for Block {}

impl Block {
    /// Reads the word of a page.
    pub fn word(&self, index: PageInBlock) -> PageWord {
        PageWord::from_bits(self.words[index.get()].load(Acquire))
    }
    /// Replaces `old` by `new`.
    ///
    /// # Errors
    /// Returns the word that was found instead of `old`.
    pub fn replace(&self, index: PageInBlock, old: PageWord, new: PageWord) -> Result<(), PageWord> {
        match self.words[index.get()].compare_exchange(old.bits(), new.bits(), AcqRel, Acquire) {
            Ok(_) => Ok(()),
            Err(found) => Err(PageWord::from_bits(found)),
        }
    }
    /// Writes a word that no other thread may change now (see the table of [`crate::page`]).
    pub fn set(&self, index: PageInBlock, word: PageWord) {
        self.words[index.get()].store(word.bits(), Release);
    }
}

#[repr(C)]
struct Directory<T, const ENTRIES: usize> {
    entries: [AtomicPtr<T>; ENTRIES],
}

type Root = Directory<Directory<Block, DIRECTORY>, ROOT>;

/// The page table. Readers take no lock; blocks are added under the pool's lock.
#[repr(C)]
pub struct PageTable {
    root: AtomicPtr<Root>,
    pool: SpinLock<Pool>,
}

struct Pool {
    free: *mut Block,
    fresh: *mut u8,
    fresh_left: usize,
    blocks: usize,
}

const POOL_BYTES: usize = 128 << 10;

impl PageTable {
    /// Creates an empty table. The first insertion takes the root directory from its memory.
    pub const fn new() -> Self {
        PageTable {
            root: AtomicPtr::new(null_mut()),
            pool: SpinLock::new(Pool { free: null_mut(), fresh: null_mut(), fresh_left: 0, blocks: 0 }),
        }
    }

    fn indices(block: BlockAddr) -> Option<(usize, usize)> {
        if block.raw() >> ADDRESS_BITS != 0 {
            return None;
        }
        let number = block.number();
        Some((number >> DIRECTORY_BITS, number & (DIRECTORY - 1)))
    }

    /// Returns the block at this address, or of this page or piece, if there is one. Cost:
    /// lock-free, two loads.
    #[inline]
    pub fn block(&self, address: impl Into<BlockAddr>) -> Option<&Block> {
        self.find(address.into())
    }

    fn find(&self, address: BlockAddr) -> Option<&Block> {
        let (high, low) = Self::indices(address)?;
        // SAFETY: directories and blocks are never given back to the system, and pointers are
        // published with Release.
        unsafe {
            let root = self.root.load(Acquire).as_ref()?;
            let directory = root.entries[high].load(Acquire).as_ref()?;
            directory.entries[low].load(Acquire).as_ref()
        }
    }

    /// Returns the block at this address, or of this page or piece, and makes it if there is none.
    /// Returns `None` when `memory` has none or the address is not a user address.
    #[inline]
    pub fn block_or_insert(&self, address: impl Into<BlockAddr>, memory: &impl Memory) -> Option<&Block> {
        let address = address.into();
        self.find(address).or_else(|| self.insert(address, memory))
    }

    fn insert(&self, address: BlockAddr, memory: &impl Memory) -> Option<&Block> {
        let (high, low) = Self::indices(address)?;
        let mut pool = self.pool.lock();
        let root = Self::directory(&self.root, memory)?;
        let directory = Self::directory(&root.entries[high], memory)?;
        let pointer = &directory.entries[low];
        // SAFETY: as in `find`.
        if let Some(block) = unsafe { pointer.load(Acquire).as_ref() } {
            return Some(block);
        }
        let block = pool.take(memory)?;
        pointer.store(block, Release);
        // SAFETY: fresh and exclusive until published just now; blocks live for ever.
        Some(unsafe { &*block })
    }

    fn directory<'a, T, const ENTRIES: usize>(
        pointer: &'a AtomicPtr<Directory<T, ENTRIES>>,
        memory: &impl Memory,
    ) -> Option<&'a Directory<T, ENTRIES>> {
        let mut directory = pointer.load(Acquire);
        if directory.is_null() {
            directory = memory.take(size_of::<Directory<T, ENTRIES>>())?.as_ptr().cast();
            pointer.store(directory, Release);
        }
        // SAFETY: zeroed memory is a valid directory; it is never given back.
        Some(unsafe { &*directory })
    }

    /// Calls `each` for every block that intersects `start..end`, with the block's address.
    pub fn for_blocks(&self, start: usize, end: usize, mut each: impl FnMut(BlockAddr, &Block)) {
        self.for_blocks_while(start, end, |address, block| {
            each(address, block);
            ControlFlow::Continue(())
        });
    }

    /// As [`PageTable::for_blocks`], until `each` breaks off.
    pub fn for_blocks_while(
        &self,
        start: usize,
        end: usize,
        mut each: impl FnMut(BlockAddr, &Block) -> ControlFlow<()>,
    ) {
        // SAFETY: as in `find`.
        let Some(root) = (unsafe { self.root.load(Acquire).as_ref() }) else { return };
        let mut address = BlockAddr::containing(start);
        let end = end.min(ADDRESS_END);
        while address.raw() < end {
            let Some((high, low)) = Self::indices(address) else { return };
            // SAFETY: as in `find`.
            match unsafe { root.entries[high].load(Acquire).as_ref() } {
                None => address = BlockAddr::containing((high + 1) << (DIRECTORY_BITS + 21)),
                Some(directory) => {
                    // SAFETY: as in `find`.
                    if let Some(block) = unsafe { directory.entries[low].load(Acquire).as_ref() }
                        && each(address, block).is_break()
                    {
                        return;
                    }
                    address = address.plus(1);
                }
            }
        }
    }

    /// Removes the block of a range that is no longer mapped, for reuse.
    ///
    /// The block's words must all be `Present` or `Removed`. The caller must be sure that no other
    /// thread still changes it (it holds the move lock, and the fault handler is the caller). A
    /// thread that only reads a word may find that of another address.
    pub fn recycle(&self, address: BlockAddr) {
        let Some((high, low)) = Self::indices(address) else { return };
        let mut pool = self.pool.lock();
        // SAFETY: as in `find`.
        let block = unsafe {
            let Some(root) = self.root.load(Acquire).as_ref() else { return };
            let Some(directory) = root.entries[high].load(Acquire).as_ref() else { return };
            directory.entries[low].swap(null_mut(), AcqRel)
        };
        if !block.is_null() {
            pool.give(block);
        }
    }

    /// Returns the number of blocks in use, from which the size of the metadata follows.
    pub fn blocks(&self) -> usize {
        self.pool.lock().blocks
    }
}

impl Default for PageTable {
    fn default() -> Self {
        Self::new()
    }
}

impl Pool {
    fn take(&mut self, memory: &impl Memory) -> Option<*mut Block> {
        let block = if self.free.is_null() {
            if self.fresh_left < size_of::<Block>() {
                self.fresh = memory.take(POOL_BYTES)?.as_ptr();
                self.fresh_left = POOL_BYTES;
            }
            let block: *mut Block = self.fresh.cast();
            // SAFETY: at least one block is left of the memory taken.
            self.fresh = unsafe { self.fresh.add(size_of::<Block>()) };
            self.fresh_left -= size_of::<Block>();
            block
        } else {
            let block = self.free;
            // SAFETY: blocks on the free list are exclusive to the pool, whose lock we hold.
            unsafe {
                self.free = *(*block).next_free.get();
                block.write_bytes(0, 1);
            }
            block
        };
        self.blocks += 1;
        Some(block)
    }

    fn give(&mut self, block: *mut Block) {
        // SAFETY: the caller of `recycle` guarantees that no thread looks at it.
        unsafe { *(*block).next_free.get() = self.free };
        self.free = block;
        self.blocks -= 1;
    }
}

// SAFETY: the raw pointers refer to memory that lives for ever and is used under the lock.
unsafe impl Send for Pool {}

#[cfg(test)]
mod tests;
