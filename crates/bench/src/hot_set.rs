//! A program that touches a hot set at random while it goes once through much more memory than the
//! limit, in order.
//!
//! One thread does both in turns: it scans [`TURN`] pages, then makes a fixed number of touches for
//! each of them, so that every run does the same.

use crate::data::{self, Kind, PAGE, Random};
use crate::faults::{Engine, FaultWitness, TouchOutcome};
use crate::histogram::Histogram;
use crate::memory::Mapping;
use crate::resident::Resident;
use crate::touch::{Timing, clock_ns, timed_touch};
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// Pages that are scanned in a turn.
pub const TURN: u64 = 16;

/// The scans: all of the memory is written, then read.
pub const SCANS: [&str; 2] = ["write", "read"];

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of the hot set.
    pub hot: u64,
    /// Bytes that are scanned.
    pub scan: u64,
    /// Contents of both.
    pub kind: Kind,
    /// Touches of the hot set for each page that is scanned.
    pub touches_per_page: u64,
}

/// The outcomes of the hot set's touches during a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotTouches {
    /// All touches.
    pub touches: u64,
    /// Touches that faulted.
    pub faults: u64,
    /// Touches that read the store (compressed memory or a device), unclear ones included.
    pub from_store: u64,
    /// Touches that faulted without the engine's figures telling why.
    pub unclear: u64,
}

impl HotTouches {
    fn count(&mut self, outcome: TouchOutcome) {
        self.touches += 1;
        self.faults += u64::from(outcome != TouchOutcome::NoFault);
        self.from_store += u64::from(matches!(outcome, TouchOutcome::Store | TouchOutcome::Unclear));
        self.unclear += u64::from(outcome == TouchOutcome::Unclear);
    }

    /// The part (0 to 1) that needed no decompression and no device; `None` without touches.
    pub fn kept(self) -> Option<f64> {
        (self.touches > 0).then(|| 1.0 - self.from_store as f64 / self.touches as f64)
    }
}

const SEED: u64 = 1;

/// Runs both scans. The outcome of a fault is asked of `engine`, or without one of the kernel's
/// counters of this thread. `tell` is called after each scan with the bytes scanned and the hot
/// touches per second, the latencies of the hot touches, and their outcomes.
///
/// # Errors
/// The wrong page, and how it is wrong.
pub fn hot_set(
    options: &Options,
    engine: Option<&dyn Engine>,
    mut tell: impl FnMut(Timing),
) -> Result<(), String> {
    let pages = |bytes: u64| (bytes / PAGE as u64).max(1);
    let (hot_pages, scan_pages) = (pages(options.hot), pages(options.scan));
    let mapping = |pages: u64| Mapping::new(pages as usize * PAGE);
    let (mut hot, mut scan) = (mapping(hot_pages), mapping(scan_pages));
    for (number, page) in hot.chunks_exact_mut(PAGE).enumerate() {
        data::fill(page, options.kind, SEED, 0, number as u64);
    }
    let clock_ns = clock_ns();
    let (mut random, mut witness) = (Random::new(SEED), FaultWitness::new(engine));
    for name in SCANS {
        let (mut latencies, mut hot_touches) = (Histogram::default(), HotTouches::default());
        let begin = Instant::now();
        for first in (0..scan_pages).step_by(TURN as usize) {
            let turn = first..(first + TURN).min(scan_pages);
            let touches = options.touches_per_page * (turn.end - turn.start);
            for number in turn {
                let page = &mut scan[number as usize * PAGE..][..PAGE];
                // Scanned pages are numbered behind those of the hot set, so that no page of one is
                // right in the other.
                let number = hot_pages + number;
                match name {
                    "write" => data::fill(page, options.kind, SEED, 0, number),
                    _ => {
                        let (first, _) = page.split_first_chunk().expect("a page");
                        let word = u64::from_ne_bytes(*first);
                        data::check_first(word, page, options.kind, SEED, 0, number)?;
                        std::hint::black_box(data::sum(page));
                    }
                }
            }
            witness.begin();
            for _ in 0..touches {
                let number = random.below(hot_pages);
                let page = &hot[number as usize * PAGE..][..PAGE];
                let word = timed_touch(page, &mut latencies);
                hot_touches.count(witness.outcome());
                data::check_first(word, page, options.kind, SEED, 0, number)?;
            }
        }
        let seconds = begin.elapsed().as_secs_f64();
        let start = hot.as_ptr() as usize;
        tell(Timing {
            phase: name.to_owned(),
            seconds,
            mb_per_s: (scan_pages as usize * PAGE) as f64 / 1e6 / seconds,
            touches_per_s: (hot_touches.touches as f64 / seconds).round(),
            p50_ns: latencies.percentile(0.5),
            p99_ns: latencies.percentile(0.99),
            p999_ns: latencies.percentile(0.999),
            clock_ns,
            resident: Resident::of(start..start + hot.len()).ok(),
            hot: Some(hot_touches),
            ..Timing::default()
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
