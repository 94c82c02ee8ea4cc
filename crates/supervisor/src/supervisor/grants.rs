//! Clusters for members: no process gets more than it could ever need.
//!
//! A cluster costs whoever asks for it one message, and everybody else 2 MiB of the device. What a
//! member has stored there the supervisor cannot see, and figures of the member's own prove
//! nothing. But each slot in use holds a page of the member's address space, whose size the kernel
//! tells; so what a process holds is bounded by that.

use super::{
    Supervisor,
    members::{After, sent},
};
use crate::{clusters::Allowance, ipc::wire, processes::proc};
use folioswap_group::{
    devices::DEVICES_MAX,
    protocol::{CLUSTERS_PER_MESSAGE, Kind, Message},
    segment::CLUSTER_BYTES,
};

/// How many times its address space a process may hold on one device. Once would do for the pages
/// of a process whose slots lie side by side, whatever it gives up and maps anew: the largest
/// address space that it ever had counts. Free slots between them make it twice, in which even runs
/// of slots are found; and as much again is for pages that children by a bare clone(2), or
/// announced ones, keep from before their parent wrote others.
const TIMES: u64 = 4;

impl Supervisor {
    /// Gives a member clusters of these devices, as many as it may hold and the devices have.
    pub(super) fn grant_clusters(&mut self, index: usize, [count, devices, _]: [u64; 3]) -> After {
        let count = count.min(CLUSTERS_PER_MESSAGE as u64) as u32;
        let most = if count > 0 { self.most_of_each(index, count) } else { [0; DEVICES_MAX] };
        let connection = &mut self.connections[index];
        let granted = self.clusters.grant(
            self.settings.memory.writer(),
            &mut connection.clusters,
            Allowance { devices, most },
            count as usize,
        );
        // It may use them as soon as it reads the answer.
        self.networks.grant(&connection.links, granted.iter().filter_map(|&it| self.clusters.on_device(it)));
        let reply = Message::new(Kind::Clusters, [granted.len() as u64, 0, 0]).with_clusters(&granted);
        let after = sent(wire::send(&connection.socket, &reply, &[]));
        self.reserve_failed();
        after
    }

    /// How many clusters of each device the process of a member that wants `count` may still get.
    ///
    /// Clusters that another process holds too do not count: neither may use their free slots, so
    /// each needs others for its next pages.
    fn most_of_each(&mut self, index: usize, count: u32) -> [u32; DEVICES_MAX] {
        let pid = self.connections[index].pid;
        // A process may be a member more than once, and what it has announced of children that say
        // nothing makes nobody else an owner.
        let members = self.connections.iter().filter(|member| member.is_member() && member.pid == pid);
        let announced = self.pending.iter().filter(|fork| fork.parent == pid);
        let own = members.map(|member| &member.clusters).chain(announced.map(|fork| &fork.clusters));
        let held = self.clusters.held_alone(own);
        let connection = &mut self.connections[index];
        let highest = held.iter().copied().max().unwrap_or(0);
        // Address space is asked for when it matters: the highest value never falls.
        if highest.saturating_add(count) > most(connection.address_space) {
            let now = proc::memory(pid).map_or(0, |memory| memory.peak);
            connection.address_space = connection.address_space.max(now);
        }
        held.map(|held| most(connection.address_space).saturating_sub(held))
    }
}

/// The most clusters of one device for a process of so much address space.
fn most(address_space: u64) -> u32 {
    u32::try_from(address_space.saturating_mul(TIMES) / CLUSTER_BYTES).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
