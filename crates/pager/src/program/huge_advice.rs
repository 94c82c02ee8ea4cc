//! The program's advice about huge pages (MADV_HUGEPAGE, MADV_NOHUGEPAGE). The folio sizes follow
//! from it and from the group's options (`run --thp`).

use crate::engine::Engine;
use crate::engine::requests::Request;
use crate::units::PAGE;
pub use folioswap_group::folio_orders::Advised;

impl Engine {
    /// Records a thread's advice about `bytes` from the page-aligned `start` on. The evictor knows
    /// of it a moment later. Advice about memory that mremap(2) moves elsewhere is lost.
    pub fn advise_huge_pages(&self, start: usize, bytes: usize, advised: Advised) {
        let request = match advised {
            Advised::HugePages => Request::HugePages,
            Advised::NoHugePages => Request::NoHugePages,
            Advised::Nothing => return,
        };
        self.request(request, start, start.saturating_add(bytes.next_multiple_of(PAGE)));
    }
}
