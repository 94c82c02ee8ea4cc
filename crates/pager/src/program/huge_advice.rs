//! What the program has said of huge pages (MADV_HUGEPAGE, MADV_NOHUGEPAGE), and which folio sizes follow from it and from the group's
//! options (`run --thp`).

use crate::engine::Engine;
use crate::engine::requests::Request;
use crate::units::PAGE;
pub use folioswap_group::folio_orders::Advised;

impl Engine {
    /// A thread of the program has advised so about `bytes` from the page-aligned `start` on. Known to the pager a moment later. What is
    /// moved elsewhere by mremap(2) is as if nothing had been said.
    pub fn advise_huge_pages(&self, start: usize, bytes: usize, advised: Advised) {
        let request = match advised {
            Advised::HugePages => Request::HugePages,
            Advised::NoHugePages => Request::NoHugePages,
            Advised::Nothing => return,
        };
        self.request(request, start, start.saturating_add(bytes.next_multiple_of(PAGE)));
    }
}
