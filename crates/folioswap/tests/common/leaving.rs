//! Taking memory out until it is out.

use folioswap::Region;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Takes all of a region out until so many bytes of `range` are resident, for five seconds; returns how many are then. What a fault brings, or
/// fills, around its own page may come after the first time.
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
