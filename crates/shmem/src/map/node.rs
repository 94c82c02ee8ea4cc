//! Nodes of the map.

use crate::sync::{AtomicU64, Relaxed, Release};
use crate::word::{Found, Item, is_node, unpack};

pub(super) const BITS: u32 = 6;
pub(super) const SLOTS: usize = 1 << BITS;

pub(super) struct Node {
    pub(super) slots: [AtomicU64; SLOTS],
    /// Marks: slots below which something is resident, or swapped out.
    pub(super) resident: AtomicU64,
    pub(super) swapped: AtomicU64,
    pub(super) level: u32,
}

pub(super) fn covered(level: u32) -> u32 {
    BITS * (level + 1)
}

/// The slot of `index` in a node of this level.
pub(super) fn slot_of(index: u64, level: u32) -> usize {
    (index >> (BITS * level)) as usize & (SLOTS - 1)
}

/// # Safety
/// `word` is the address of a node that is in the map now, or was when this thread's epoch was
/// pinned.
pub(super) unsafe fn node<'n>(word: u64) -> &'n Node {
    // SAFETY: the caller's contract.
    unsafe { &*(word as *const Node) }
}

/// Whether folios, or swap entries, are anywhere below a slot.
struct Marks {
    resident: bool,
    swapped: bool,
}

impl Node {
    /// The marks of a slot with this word.
    fn marks_of(word: u64) -> Marks {
        match unpack(word) {
            Some(Found { item: Item::Folio(_), .. }) => Marks { resident: true, swapped: false },
            Some(Found { item: Item::Swap(_), .. }) => Marks { resident: false, swapped: true },
            Some(_) => Marks { resident: false, swapped: false },
            None if is_node(word) => {
                // SAFETY: called by the writer alone, for a node that is in the map or was just
                // made.
                let child = unsafe { node(word) };
                Marks {
                    resident: child.resident.load(Relaxed) != 0,
                    swapped: child.swapped.load(Relaxed) != 0,
                }
            }
            None => Marks { resident: false, swapped: false },
        }
    }

    pub(super) fn set(&self, slot: usize, word: u64) {
        self.slots[slot].store(word, Release);
        self.mark(slot, word);
    }

    pub(super) fn mark(&self, slot: usize, word: u64) {
        let Marks { resident, swapped } = Node::marks_of(word);
        for (marks, is) in [(&self.resident, resident), (&self.swapped, swapped)] {
            let bits = marks.load(Relaxed) & !(1 << slot) | u64::from(is) << slot;
            marks.store(bits, Release);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.iter().all(|slot| slot.load(Relaxed) == 0)
    }
}
