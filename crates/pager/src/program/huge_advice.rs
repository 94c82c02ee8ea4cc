//! The program's advice about huge pages (MADV_HUGEPAGE, MADV_NOHUGEPAGE), and the folio sizes that
//! follow from it and from the group's options (`run --thp`).

use crate::engine::Engine;
use crate::engine::requests::Request;
use crate::units::PAGE;
pub use folioswap_group::folio_orders::Advised;

impl Engine {
    /// Records a thread's advice about `bytes` from the page-aligned `start` on. The pager knows it
    /// a moment later. Memory that mremap(2) moves elsewhere is treated as if no advice had been
    /// given.
    pub fn advise_huge_pages(&self, start: usize, bytes: usize, advised: Advised) {
        let request = match advised {
            Advised::HugePages => Request::HugePages,
            Advised::NoHugePages => Request::NoHugePages,
            Advised::Nothing => return,
        };
        self.request(request, start, start.saturating_add(bytes.next_multiple_of(PAGE)));
    }
}
