//! How tightly the store packs: `cargo bench -p folioswap-devices --bench utilisation`.
//!
//! Prints stored bytes over memory in use, as the store counts it and as the system does: when just
//! filled, after random frees and refills of other contents, after a large random shrink, and after
//! compaction.

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Instant;

use common::data::{PageKind, Rng};
use common::device::{PageStore, ZramDevice};
use folioswap_devices::{Place, Scratch, StoreOptions, Verdict};

const PAGES: u64 = 65536;

struct Table {
    device: ZramDevice,
    scratch: Box<Scratch>,
    places: Vec<Place>,
    kind: PageKind,
    rng: Rng,
}

impl Table {
    fn new(kind: PageKind) -> Self {
        let device = ZramDevice::new(StoreOptions::DEFAULT);
        Self { device, scratch: Box::default(), places: Vec::new(), kind, rng: Rng::new(11) }
    }

    fn store(&mut self, owner: usize) -> Place {
        let seed = self.rng.next();
        self.device.store(&mut self.scratch, &self.kind.page(seed), owner as u64).unwrap()
    }

    fn report(&self, phase: &str) {
        let stat = self.device.zram.mm_stat();
        let resident = self.device.zram.memory().resident_bytes();
        let percent = |used: f64| 100.0 * stat.compr_data_size as f64 / used;
        println!(
            "{:<12} {phase:<44} {:>7.1} MiB stored {:>7.1} MiB used {:>5.1} % | system {:>7.1} MiB {:>5.1} %",
            format!("{:?}", self.kind),
            stat.compr_data_size as f64 / 1048576.0,
            stat.mem_used_total as f64 / 1048576.0,
            percent(stat.mem_used_total as f64),
            resident as f64 / 1048576.0,
            percent(resident as f64),
        );
    }

    fn replace_random(&mut self, pages: u64) {
        for _ in 0..pages {
            let at = self.rng.below(self.places.len() as u64) as usize;
            self.device.free(self.places[at]);
            self.places[at] = self.store(at);
        }
    }

    /// Frees a random half, keeping owners equal to indices.
    fn shrink(&mut self) {
        for at in 0..self.places.len() {
            if self.places[at] != Place::None && self.rng.below(2) == 0 {
                self.device.free(self.places[at]);
                self.places[at] = Place::None;
            }
        }
        self.device.zram.trim();
    }

    fn compact(&mut self) {
        let (places, start) = (&mut self.places, Instant::now());
        let report = self.device.zram.compact(u64::MAX, |relocation| {
            let Place::Zram { handle, .. } = &mut places[relocation.owner.raw() as usize] else {
                return Verdict::Kept;
            };
            *handle = relocation.new;
            Verdict::Moved
        });
        let took = start.elapsed();
        self.device.zram.trim();
        println!(
            "{:12} moved {} objects, {:.1} MiB, {:.0} ns each, freed {} spans",
            "",
            report.objects_moved,
            report.bytes_moved as f64 / 1048576.0,
            took.as_nanos() as f64 / report.objects_moved.max(1) as f64,
            report.spans_freed
        );
    }
}

fn main() {
    for kind in [PageKind::TwoToOne, PageKind::ThreeToOne, PageKind::Mixed] {
        let mut table = Table::new(kind);
        for owner in 0..PAGES as usize {
            let place = table.store(owner);
            table.places.push(place);
        }
        table.report("filled, 256 MiB of pages");
        table.replace_random(PAGES);
        table.report("as many random pages replaced");
        table.replace_random(4 * PAGES);
        table.report("five times as many");
        table.shrink();
        table.report("a random half freed");
        table.compact();
        table.report("compacted");
        let places = std::mem::take(&mut table.places);
        places.into_iter().filter(|place| *place != Place::None).for_each(|place| table.device.free(place));
        table.device.zram.trim();
        table.report("all freed");
    }
}
