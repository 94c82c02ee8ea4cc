//! Page tables of children made by a bare clone(2) (`fork/raw_child.rs`).

use crate::engine::arena::Arena;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};
use folioswap_group::protocol::RAW_CHILDREN_MAX;
use folioswap_policy::page_table::PageTable;

/// The most such children at a time; one more ends the process with the supervisor's message,
/// because it would read zeroes otherwise.
pub(crate) const CHILDREN_MAX: usize = RAW_CHILDREN_MAX;

/// The tables of such children, by number. The table of a child that is gone belongs to no
/// child and has no stored page in it; it stays for the next child. The tables are the engine's, so
/// that a forked child finds the pages that it has inherited of them. All-zero: none was made.
#[repr(C)]
pub(crate) struct RawTables([AtomicUsize; CHILDREN_MAX]);

impl RawTables {
    /// The table with this number, made if there is none. `None` without memory.
    pub(crate) fn table(&self, arena: &Arena, number: usize) -> Option<&'static PageTable> {
        let place = &self.0[number];
        let is_new = place.load(Relaxed) == 0;
        let table = arena.room::<PageTable>(place)?;
        // SAFETY: memory of the arena's for a table, there for ever; a new table is known to no
        // other thread.
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
    /// The number of such children now.
    pub(crate) raw: AtomicU32,
    /// Bytes of the engine's own memory that may still be shared with the youngest of them.
    pub(crate) shared_bytes: AtomicU64,
    /// The page tables of the memory that they hold.
    pub(crate) tables: RawTables,
}
