//! Page tables of children made by a bare clone(2) (`fork/raw_child.rs`).

use crate::engine::arena::Arena;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};
use folioswap_policy::page_table::PageTable;

/// Most such children at a time; one more ends the process with the supervisor's message, rather than read zeroes.
pub(crate) const CHILDREN_MAX: usize = 64;

/// The tables of such children, by their place: of nobody, with nothing stored in it, when the child is gone. They stay for the next child, and
/// are the engine's, so that a forked child finds what it has inherited of them. All-zero: none was made.
#[repr(C)]
pub(crate) struct RawTables([AtomicUsize; CHILDREN_MAX]);

impl RawTables {
    /// The table with this number, made if there is none. `None` without memory.
    pub(crate) fn table(&self, arena: &Arena, number: usize) -> Option<&'static PageTable> {
        let place = &self.0[number];
        let is_new = place.load(Relaxed) == 0;
        let table = arena.room::<PageTable>(place)?;
        // SAFETY: memory of the arena's for a table, there for ever; if it is new, nobody else knows of it.
        unsafe {
            if is_new {
                table.write(PageTable::new());
            }
            Some(table.as_ref())
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static PageTable> {
        // SAFETY: as above.
        self.0.iter().filter_map(|place| unsafe { (place.load(Relaxed) as *const PageTable).as_ref() })
    }
}

/// Children made by a bare clone(2), which this process serves.
#[repr(C)]
pub struct ServedChildren {
    /// How many there are now.
    pub(crate) raw: AtomicU32,
    /// Bytes of the engine's own memory that may still be shared with the youngest of them.
    pub(crate) shared_bytes: AtomicU64,
    /// The page tables of what they hold.
    pub(crate) tables: RawTables,
}
