//! The tiers of a group: which of its devices take new pages.

use super::Supervisor;
use folioswap_group::{decisions::Decisions, nested::WHOLE, protocol::ChangeEnd};
use folioswap_policy::tiers;
use folioswap_slots::DeviceMask;

/// The priorities of all devices, by number.
fn priorities(decisions: &Decisions) -> impl Iterator<Item = i32> + Clone + '_ {
    decisions.devices.iter().map_while(|entry| Some(entry.description()?.priority))
}

impl Supervisor {
    /// Lets new pages go to the tiers of these devices alone, a bit each.
    pub(super) fn set_tiers(&self, devices: u32) -> ChangeEnd {
        let group = self.settings.memory.group();
        let decisions = group.decisions;
        let devices = tiers::whole_tiers(DeviceMask::from_bits(devices), priorities(decisions));
        let mut used =
            DeviceMask::ALL.iter().zip(decisions.devices()).filter(|(id, _)| devices.contains(*id));
        if !used.any(|(_, (_, entry))| entry.takes_pages()) {
            return ChangeEnd::NoDevice;
        }
        self.mask_devices(DeviceMask::ALL.minus(devices));
        ChangeEnd::Done { charge: group.certain_charge_bytes() }
    }

    /// Treats a device that was added like those of its priority: it is masked if all of them are.
    pub(super) fn mask_added(&self, number: usize) {
        let decisions = self.settings.memory.group().decisions;
        let masked = DeviceMask::from_bits(decisions.masked_devices());
        let Some(added) = DeviceMask::ALL.iter().nth(number) else { return };
        let tier = tiers::whole_tiers(DeviceMask::only(added), priorities(decisions)).without(added);
        let is_masked = !tier.is_empty() && tier.minus(masked).is_empty();
        self.mask_devices(if is_masked { masked.with(added) } else { masked.without(added) });
    }

    fn mask_devices(&self, masked: DeviceMask) {
        self.settings.memory.writer().set_masked_devices_of(WHOLE, masked.bits());
        self.wake_members();
    }
}
