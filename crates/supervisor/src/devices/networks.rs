//! The network devices of the group: the services behind the members' links, and the events that
//! the user should know.

use super::PreparedNetwork;
use folioswap_nbd::{
    client::Event,
    key::KeyError,
    service::{LinkOwner, Service, Told},
};
use rustix::fd::OwnedFd;

pub use folioswap_nbd::service::Access;

/// One network device.
struct Network {
    /// The number of the device.
    number: usize,
    /// The name as the user gave it.
    name: String,
    service: Service,
    told: Told,
}

/// The link of one member to one device.
#[derive(Clone, Copy, Debug)]
pub struct MemberLink {
    number: usize,
    owner: LinkOwner,
}

impl MemberLink {
    /// Whether this is a link to the device of that number.
    pub fn is_to(&self, number: usize) -> bool {
        self.number == number
    }
}

/// Why a device cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// No key could be made.
    #[error("--swap {name}: {source}")]
    Key {
        /// The device.
        name: String,
        /// The reason.
        source: KeyError,
    },
    /// No thread or descriptor could be had.
    #[error("--swap {name}: {source}")]
    System {
        /// The device.
        name: String,
        /// The reason.
        source: std::io::Error,
    },
}

/// Limits the C library's allocator to [`ARENAS`]. The memory of this process counts towards the
/// limit of the group, and the allocator would keep some megabytes for each of our threads.
fn share_arenas() {
    #[cfg(target_env = "gnu")]
    // SAFETY: sets a parameter of the allocator.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, ARENAS);
    }
}

/// Arenas of the allocator for all threads together.
#[cfg(target_env = "gnu")]
const ARENAS: i32 = 1;

/// All network devices of a group.
#[derive(Default)]
pub struct Networks(Vec<Network>);

impl Networks {
    /// Begins to serve these devices, given with their numbers.
    ///
    /// # Errors
    /// [`NetworkError`].
    pub fn start(prepared: impl Iterator<Item = (usize, PreparedNetwork)>) -> Result<Self, NetworkError> {
        let mut networks = Networks::default();
        for (number, prepared) in prepared {
            networks.add(number, prepared)?;
        }
        Ok(networks)
    }

    /// Begins to serve a device. From here on this process has several threads and must not fork
    /// any more.
    ///
    /// # Errors
    /// [`NetworkError`].
    pub fn add(&mut self, number: usize, prepared: PreparedNetwork) -> Result<(), NetworkError> {
        share_arenas();
        let PreparedNetwork { export, told } = prepared;
        let name = export.uri().to_string();
        let store = export.start().map_err(|source| NetworkError::Key { name: name.clone(), source })?;
        let service =
            Service::start(store).map_err(|source| NetworkError::System { name: name.clone(), source })?;
        self.0.push(Network { number, name, service, told });
        Ok(())
    }

    fn of_number(&self, number: usize) -> Option<&Network> {
        self.0.iter().find(|network| network.number == number)
    }

    /// A link to the device of this number, which may reach this much; `None` when that is no
    /// network device or no descriptor is free.
    pub fn new_link(&self, number: usize, access: Access) -> Option<(OwnedFd, MemberLink)> {
        let (socket, owner) = self.of_number(number)?.service.new_link(access).ok()?;
        Some((socket, MemberLink { number, owner }))
    }

    /// Lets a member that has these links read and write clusters, given with their devices and by
    /// the numbers there. To be called before it learns that it owns them.
    pub fn grant(&self, links: &[MemberLink], clusters: impl Iterator<Item = (usize, u32)> + Clone) {
        for (service, owner, clusters) in self.served(links, clusters) {
            service.grant(owner, clusters);
        }
    }

    /// Lets it read and write them no more. To be called before somebody else gets them.
    pub fn withdraw(&self, links: &[MemberLink], clusters: impl Iterator<Item = (usize, u32)> + Clone) {
        for (service, owner, clusters) in self.served(links, clusters) {
            service.withdraw(owner, clusters);
        }
    }

    /// Each link's service and owner, with those of the clusters that are on its device.
    fn served<'a>(
        &'a self,
        links: &'a [MemberLink],
        clusters: impl Iterator<Item = (usize, u32)> + Clone + 'a,
    ) -> impl Iterator<Item = (&'a Service, LinkOwner, impl Iterator<Item = u32> + 'a)> {
        links.iter().filter_map(move |&MemberLink { number, owner }| {
            let service = &self.of_number(number)?.service;
            let here = move |(device, cluster): (usize, u32)| (device == number).then_some(cluster);
            Some((service, owner, clusters.clone().filter_map(here)))
        })
    }

    /// Forgets the links of a member that has ended, or that it has lost. Must be called before its
    /// clusters are given to others.
    pub fn forget(&self, links: &[MemberLink]) {
        for link in links {
            if let Some(network) = self.of_number(link.number) {
                network.service.forget(link.owner);
            }
        }
    }

    /// Ends the service of a device that is off, and takes leave of its server.
    pub fn remove(&mut self, number: usize) {
        for gone in self.0.extract_if(.., |network| network.number == number) {
            gone.service.finish();
        }
    }

    /// Tells the service of a device which of its clusters nobody owns any more, by the numbers of
    /// the device.
    pub fn freed(&self, number: usize, clusters: impl Iterator<Item = u32>) {
        if let Some(network) = self.of_number(number) {
            clusters.for_each(|cluster| network.service.cluster_freed(cluster, network.told));
        }
    }

    /// The events since the last call, as one line of text each.
    pub fn messages(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for Network { name, service, .. } in &self.0 {
            for event in service.take_events() {
                lines.push(match event {
                    Event::Away(why) => format!(
                        "folioswap: --swap {name}: the connection is lost ({why}); pages there are waited for while it is tried again\n"
                    ),
                    Event::Back(after) => {
                        format!("folioswap: --swap {name}: connected again after {:.1} s\n", after.as_secs_f64())
                    }
                    Event::Replaced(how) => format!(
                        "folioswap: --swap {name}: this is not the export that it was: {how}. What was stored there is lost; whoever \
                         touches such a page gets SIGBUS\n"
                    ),
                });
            }
        }
        lines
    }

    /// Takes leave of all servers.
    pub fn finish(&self) {
        self.0.iter().for_each(|network| network.service.finish());
    }
}
