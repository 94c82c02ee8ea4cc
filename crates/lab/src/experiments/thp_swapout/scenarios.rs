//! Large folios under less than ideal conditions, by counts, which time does not change (spec §3.2
//! to §3.7).

use super::{Counts, ThpSwapoutError, Variant, count};
use crate::allocator::Allocator;
use crate::policies::WithPolicy;
use crate::swapout::{Backing, Cpu, Setup};
use folioswap_slots::{
    AllocError, CLUSTER_SLOTS, DeviceMask, DeviceSpec, FolioId, LogicalCpu, Order, Policy, Shadow, Slots,
};
use serde::Serialize;

/// Memory of the one task, pages; all of it fits into the limit.
const PAGES: u32 = 16 * CLUSTER_SLOTS;
/// Slots of the device: four times as many.
const DEVICE: u64 = 4 * PAGES as u64;
/// One folio of this many is only partially mapped.
const EVERY: u32 = 8;

/// The conditions that the folios meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// A device with nothing on it.
    EmptyDevice,
    /// A device on which every second slot is used: half of it is free, but no two adjacent slots.
    NoRunLeft,
    /// The task has given back one page of every eighth folio.
    PartiallyMapped,
    /// The task advises all but its first and its last page to leave, so that the first and the
    /// last folio lie only partly in the range.
    AdvisedInPart,
    /// The task ends while its folios are still cached, under write-back.
    EndsUnderWriteBack,
}

/// All scenarios.
pub const SCENARIOS: [Scenario; 5] = [
    Scenario::EmptyDevice,
    Scenario::NoRunLeft,
    Scenario::PartiallyMapped,
    Scenario::AdvisedInPart,
    Scenario::EndsUnderWriteBack,
];

impl Scenario {
    /// The name in a table.
    pub const fn name(self) -> &'static str {
        match self {
            Scenario::EmptyDevice => "empty device",
            Scenario::NoRunLeft => "no two free slots in a row",
            Scenario::PartiallyMapped => "every 8th partially mapped",
            Scenario::AdvisedInPart => "first and last advised in part",
            Scenario::EndsUnderWriteBack => "ends under write-back",
        }
    }
}

/// The outcome of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ScenarioOutcome {
    /// The scenario.
    pub scenario: Scenario,
    /// Order in which memory came.
    pub order: u32,
    /// The variant.
    pub variant: Variant,
    /// The fate of the folios.
    pub counts: Counts,
}

/// Runs every scenario with 64 kB and 2 MB, before and after. Cost: a tenth of a second.
///
/// # Errors
/// [`ThpSwapoutError`].
pub fn run_scenarios() -> Result<Vec<ScenarioOutcome>, ThpSwapoutError> {
    let mut outcomes = Vec::new();
    for scenario in SCENARIOS {
        for order in [4, 9] {
            for variant in [Variant::Before, Variant::After] {
                let task = Task { scenario, order, variant };
                let counts = variant.policy().apply(task)?;
                outcomes.push(ScenarioOutcome { scenario, order, variant, counts });
            }
        }
    }
    Ok(outcomes)
}

struct Task {
    scenario: Scenario,
    order: u32,
    variant: Variant,
}

impl WithPolicy for Task {
    type Output = Result<Counts, ThpSwapoutError>;

    fn run<P: Policy>(self) -> Self::Output {
        let order = Order::new(self.order).unwrap_or(Order::ZERO);
        let allocator: Allocator<P> = Allocator::new(1, DEVICE.div_ceil(u64::from(CLUSTER_SLOTS)) as u32)?;
        let slots = allocator.slots();
        slots.swapon(DeviceSpec::new(DEVICE))?;
        let others = if self.scenario == Scenario::NoRunLeft { use_every_second_slot(slots) } else { 0 };
        let before = slots.stats().allocated[0];
        let mut cpu = Cpu::new(&Setup {
            slots,
            logical: LogicalCpu(0),
            large_folios: self.variant.large_folios(),
            order,
            tasks: 1,
            task_pages: PAGES,
            limit: 2 * PAGES,
            backing: Backing::None,
        })?;
        cpu.write_all();
        if self.scenario == Scenario::PartiallyMapped {
            for first in (0..PAGES).step_by((EVERY * order.slots()) as usize) {
                cpu.give_back(0, first + 1);
            }
        }
        match self.scenario {
            Scenario::AdvisedInPart => cpu.page_out(0, 1..PAGES - 1),
            Scenario::EndsUnderWriteBack => cpu.begin_page_out(0, 0..PAGES),
            _ => cpu.page_out(0, 0..PAGES),
        }
        let exit = cpu.exit();
        let mut counts = count(slots, order, &[cpu], &[exit]).map_err(ThpSwapoutError::Unsound)?;
        counts.pages_alone -= before;
        counts.lost -= others;
        Ok(counts)
    }
}

/// Takes all slots singly and frees every second one. Returns the number of slots that stay in use.
fn use_every_second_slot<P: Policy>(slots: &Slots<0, P>) -> u64 {
    let folio = FolioId(u32::MAX - 1);
    let take = || slots.alloc_folio(LogicalCpu(0), Order::ZERO, folio, DeviceMask::ALL);
    let mut taken = Vec::new();
    let full = loop {
        match take() {
            Ok(entry) => taken.push(entry),
            Err(error) => break error,
        }
    };
    assert_eq!(full, AllocError::NoSpace);
    for entry in &taken {
        let left = slots.cache_remove(*entry, 1, folio, Shadow::EMPTY, |_, _| {});
        left.expect("cached when it was allocated");
    }
    let odd = taken.iter().filter(|entry| !entry.offset().is_multiple_of(2));
    let mut freed = 0;
    for entry in odd {
        let put = slots.put(*entry, 1, |_, _| {}).expect("a slot of a device that is on");
        freed += u64::from(put.freed);
    }
    taken.len() as u64 - freed
}
