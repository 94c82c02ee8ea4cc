//! The tiers of a group: which of its devices take new pages.

use super::Supervisor;
use crate::devices::priorities;
use folioswap_group::{nested::WHOLE, protocol::ChangeEnd};
use folioswap_policy::tiers;
use folioswap_slots::{DeviceId, DeviceMask};

/// The masked devices of a moment, and how many devices there were.
#[derive(Clone, Copy, Debug)]
pub(super) struct TiersBefore {
    masked: DeviceMask,
    devices: usize,
}

impl Supervisor {
    /// The tiers as they are now.
    pub(super) fn tiers_before(&self) -> TiersBefore {
        let decisions = self.settings.memory.group().decisions;
        let masked = DeviceMask::from_bits(decisions.masked_devices());
        TiersBefore { masked, devices: decisions.devices().count() }
    }

    /// Lets the old tiers hold again. Devices that were added meanwhile stay as they are.
    pub(super) fn put_tiers_back(&mut self, before: TiersBefore) {
        let now = DeviceMask::from_bits(self.settings.memory.group().decisions.masked_devices());
        let masked = DeviceMask::ALL.iter().filter(|id| {
            let then = if id.index() < before.devices { before.masked } else { now };
            then.contains(*id)
        });
        self.mask_devices(masked.fold(DeviceMask::NONE, DeviceMask::with));
    }

    /// Lets new pages go to the tiers of these devices alone, a bit each.
    pub(super) fn set_tiers(&mut self, devices: u32) -> ChangeEnd {
        let decisions = self.settings.memory.group().decisions;
        let devices = tiers::whole_tiers(DeviceMask::from_bits(devices), priorities(decisions));
        let takes = |id: DeviceId| decisions.devices[id.index()].takes_pages();
        let known = decisions.devices().count();
        if !DeviceMask::ALL.iter().take(known).any(|id| devices.contains(id) && takes(id)) {
            return ChangeEnd::NoDevice;
        }
        self.mask_devices(DeviceMask::ALL.minus(devices));
        ChangeEnd::Done { charge: self.settings.memory.group().certain_charge_bytes() }
    }

    /// Treats a device that was added like those of its priority: it is masked if all of them are.
    pub(super) fn mask_added(&mut self, number: usize) {
        let decisions = self.settings.memory.group().decisions;
        let masked = DeviceMask::from_bits(decisions.masked_devices());
        let Some(added) = DeviceMask::ALL.iter().nth(number) else { return };
        let tier = tiers::whole_tiers(DeviceMask::only(added), priorities(decisions)).without(added);
        let is_masked = !tier.is_empty() && tier.minus(masked).is_empty();
        self.mask_devices(if is_masked { masked.with(added) } else { masked.without(added) });
    }

    fn mask_devices(&mut self, masked: DeviceMask) {
        // What was said about full devices was said of others.
        self.shortage.begin_anew();
        self.settings.memory.writer().set_masked_devices_of(WHOLE, masked.bits());
        self.wake_members();
    }
}
