//! The cost of a copy-on-write clone, of resident and of swapped-out memory, beside a copy into a
//! new region.
//!
//! `cargo bench -p folioswap --bench clones [-- ROUNDS]` (default: 5). The data: LZ4 halves it.

use folioswap::{Device, Region, Swap};
use std::time::Instant;

const BYTES: usize = 256 << 20;
const PAGES: usize = BYTES / folioswap_devices::PAGE_SIZE;

/// Fills memory so that half of each page does not compress.
fn fill(memory: &mut [u8]) {
    let mut word = 1_u64;
    for chunk in memory.chunks_exact_mut(16) {
        word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) | 1;
        chunk[..8].copy_from_slice(&word.to_ne_bytes());
    }
}

/// Returns the nanoseconds per page, and the region made.
fn each(work: impl FnOnce() -> Region) -> (f64, Region) {
    let begun = Instant::now();
    let region = work();
    (begun.elapsed().as_nanos() as f64 / PAGES as f64, region)
}

fn main() {
    let rounds = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(5);
    let swap = Swap::builder().limit("2G").device(Device::zram()).build().expect("a swap");
    let mut region = swap.region(BYTES).expect("a region");
    fill(region.as_mut_slice());
    let mut rows: [(&str, Vec<f64>); 3] = [
        ("clone of what is in memory", Vec::new()),
        ("clone of what is swapped out", Vec::new()),
        ("copy of what is swapped out into a new region", Vec::new()),
    ];
    for _ in 0..rounds {
        // Writing makes all pages new, so that no page keeps a stored copy.
        fill(region.as_mut_slice());
        for row in &mut rows[..2] {
            let (nanoseconds, clone) = each(|| region.try_clone().expect("a clone"));
            row.1.push(nanoseconds);
            drop(clone);
        }
        let (nanoseconds, copy) = each(|| {
            let mut copy = swap.region(BYTES).expect("a region");
            copy.as_mut_slice().copy_from_slice(region.as_slice());
            copy.page_out(..).expect("advice");
            copy
        });
        rows[2].1.push(nanoseconds);
        drop(copy);
    }
    println!("| {} MiB ({rounds} rounds) | ns a page, median (lowest, highest) |", BYTES >> 20);
    println!("|---|---|");
    for (name, mut times) in rows {
        times.sort_unstable_by(f64::total_cmp);
        let (median, low, high) = (times[times.len() / 2], times[0], times[times.len() - 1]);
        println!("| {name} | {median:.0} ({low:.0}, {high:.0}) |");
    }
}
