//! A list order of one's own, compared with that of the kernel on the trace of a build.
//!
//! The order here takes the list that holds more clusters first: NONFULL or FREE. Change
//! `list_order`, and run it again:
//!
//! ```sh
//! cargo run --release -p own-list-order                 # a generated build
//! cargo run --release -p own-list-order -- real.trace   # your own trace
//! ```

use folioswap_lab::build::{BuildParameters, Scale, Sizes};
use folioswap_lab::policies::{Locks, PolicyName, Yield};
use folioswap_lab::replay::{Device, Medium, Prepared, Replay, Replayed, Retention, replay, replay_with};
use folioswap_lab::{generate, traces::Trace};
use folioswap_slots::{DeviceFlags, DeviceView, ListOrder, Policy, Search, Searches};
use std::error::Error;
use std::path::Path;

/// Takes the list that holds more clusters first.
struct LongestListFirst;

impl Policy for LongestListFirst {
    type Relax = Yield;
    const LIST_ORDER: ListOrder = ListOrder::Own;

    fn list_order(view: &DeviceView) -> Searches {
        let [first, second] = if view.nonfull > view.free {
            [Search::Nonfull, Search::Free]
        } else {
            [Search::Free, Search::Nonfull]
        };
        [Some(first), Some(second), Some(Search::ReclaimFull), Some(Search::OneFragment), None, None]
    }
}

fn print(name: &str, replayed: &Replayed) {
    let sum = |counts: &[u64]| counts.iter().sum::<u64>();
    let (allocated, failed) = (sum(&replayed.allocated[1..]), sum(&replayed.fallback[1..]));
    let large = (allocated + failed).max(1) as f64;
    println!(
        "{name:16} large folios: {allocated} whole, {failed} split ({:.2} %); clusters scanned for each: {:.3}",
        100.0 * failed as f64 / large,
        sum(&replayed.clusters_scanned[1..]) as f64 / large
    );
}

fn main() -> Result<(), Box<dyn Error>> {
    let trace = match std::env::args_os().nth(1) {
        Some(file) => Trace::read(Path::new(&file))?,
        None => {
            let build = BuildParameters::published(Sizes::All).scaled(Scale(16));
            generate::in_memory(&build, DeviceFlags::SYNCHRONOUS, 1)?
        }
    };
    let prepared = Prepared::new(&trace, Retention::Never)?;
    // A device that becomes 97 % full.
    let pages = Some(prepared.slots_peak * 100 / 97 + 1);
    let zram = Device { medium: Medium::Zram, pages, priority: None, synchronous: true, discard: false };
    let mut options = Replay {
        policy: PolicyName::Current,
        devices: vec![zram],
        threads: 1,
        cpus: None,
        locks: Locks::Uncounted,
        moments: 0,
    };
    for policy in [PolicyName::ScanAll, PolicyName::NonfullFirst, PolicyName::Current] {
        options.policy = policy;
        print(policy.name(), &replay(&prepared, &options)?);
    }
    print("longest list", &replay_with::<LongestListFirst>(&prepared, &options)?);
    Ok(())
}
