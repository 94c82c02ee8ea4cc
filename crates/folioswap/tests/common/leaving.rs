//! Paging memory out until it has left.

use folioswap::Region;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Pages all of a region out until `stays` bytes of `range` are resident, for at most five seconds.
/// Returns the bytes that are resident then. A fault may bring or fill pages around its own after
/// the first time.
pub fn leaves(region: &Region, range: Range<usize>, stays: usize) -> usize {
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        region.page_out(..).unwrap();
        let resident = region.resident_bytes(range.clone()).unwrap();
        if resident == stays || Instant::now() > until {
            return resident;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
