//! What the pager asks of the gate: which memory calls hold.

use folioswap_gate::hazard::Announcer;
use folioswap_gate::pins::HAZARDS;
use folioswap_pager::engine::holds::{By, Gate};
use folioswap_pager::kernel::ranges::Range;

/// The gate of this process.
pub static GATE: Gate = Gate { announce, for_held, withdraw };

fn announcer(by: By) -> Announcer {
    match by {
        By::Mover => Announcer::First,
        By::Protector => Announcer::Second,
    }
}

fn announce(by: By, range: Range) {
    HAZARDS.announce_bytes(announcer(by), range.start..range.end);
}

fn for_held(range: Range, each: &mut dyn FnMut(Range)) {
    HAZARDS.for_held_bytes(range.start..range.end, |held| each(Range { start: held.start, end: held.end }));
}

fn withdraw(by: By) {
    HAZARDS.withdraw(announcer(by));
}
