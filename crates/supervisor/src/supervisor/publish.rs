//! What members of a group find in its decisions when they come.

use super::Settings;
use folioswap_group::nested::WHOLE;

impl Settings {
    /// Writes into the decisions what members find there.
    pub(super) fn publish(&self) {
        let writer = self.memory.writer();
        writer.initialise(
            std::process::id(),
            self.bound(),
            self.scope,
            self.devices.devices.iter().map(|device| device.description),
        );
        for (number, device) in self.devices.devices.iter().enumerate() {
            writer.device(number).take_orders(device.orders.bits());
        }
        writer.set_masked_devices_of(WHOLE, self.masked_devices.bits());
        writer.set_folio_orders(self.folio_orders);
        writer.set_way(self.way);
        writer.set_page_cluster(self.page_cluster);
        if self.validate {
            writer.want_validation();
        }
        if self.evict_all {
            writer.evict_all();
        }
        writer.want_failures(self.failures);
    }
}
