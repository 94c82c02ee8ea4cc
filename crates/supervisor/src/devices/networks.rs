//! The network devices of the group: who serves the members' links, and what of it the user should know.

use super::PreparedNetwork;
use folioswap_nbd::{
    client::Event,
    key::KeyError,
    service::{LinkOwner, Service, Told},
    store::Store,
};
use rustix::fd::OwnedFd;

/// One device.
struct Network {
    /// The device's number.
    number: usize,
    /// As the user gave it.
    name: String,
    service: Service,
    told: Told,
}

/// A member's links to one device.
#[derive(Clone, Copy, Debug)]
pub struct MemberLink {
    number: usize,
    owner: LinkOwner,
}

/// Why a device cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// No key.
    #[error("--swap {name}: {source}")]
    Key {
        /// The device.
        name: String,
        /// Why not.
        source: KeyError,
    },
    /// No thread or descriptor.
    #[error("--swap {name}: {source}")]
    System {
        /// The device.
        name: String,
        /// Why not.
        source: std::io::Error,
    },
}

/// What this process takes counts to the group's limit: the C library's allocator would keep some megabytes for each of our threads.
fn share_arenas() {
    #[cfg(target_env = "gnu")]
    // SAFETY: sets a parameter of the allocator.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, ARENAS);
    }
}

/// Arenas of the allocator, for all threads together.
#[cfg(target_env = "gnu")]
const ARENAS: i32 = 1;

/// All of them.
#[derive(Default)]
pub struct Networks(Vec<Network>);

impl Networks {
    /// Begins to serve these devices.
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

    /// Begins to serve a device. From here on this process has several threads, and forks no more.
    ///
    /// # Errors
    /// [`NetworkError`].
    pub fn add(&mut self, number: usize, prepared: PreparedNetwork) -> Result<(), NetworkError> {
        share_arenas();
        let (name, told, store) = match prepared {
            PreparedNetwork::Export { export, told } => (export.uri().to_string(), told, export.start()),
            // Its free clusters are punched where its blocks are reserved.
            PreparedNetwork::File { name, file } => (name, Told::Nobody, Store::on_file(file)),
        };
        let store = store.map_err(|source| NetworkError::Key { name: name.clone(), source })?;
        let service =
            Service::start(store).map_err(|source| NetworkError::System { name: name.clone(), source })?;
        self.0.push(Network { number, name, service, told });
        Ok(())
    }

    /// A link for a new member to the device of this number; `None`: it is no network device, or no descriptor is free.
    pub fn new_link(&self, number: usize) -> Option<(OwnedFd, MemberLink)> {
        let network = self.0.iter().find(|network| network.number == number)?;
        let (socket, owner) = network.service.new_link().ok()?;
        Some((socket, MemberLink { number, owner }))
    }

    /// A member has ended. To be said before its clusters are given to others.
    pub fn forget(&self, links: &[MemberLink]) {
        for link in links {
            if let Some(network) = self.0.iter().find(|network| network.number == link.number) {
                network.service.forget(link.owner);
            }
        }
    }

    /// A device is off: takes leave of its server.
    pub fn remove(&mut self, number: usize) {
        for gone in self.0.extract_if(.., |network| network.number == number) {
            gone.service.finish();
        }
    }

    /// Clusters of a device that are nobody's any more, by the device's own numbers.
    pub fn freed(&self, number: usize, clusters: impl Iterator<Item = u32>) {
        if let Some(network) = self.0.iter().find(|network| network.number == number) {
            clusters.for_each(|cluster| network.service.cluster_freed(cluster, network.told));
        }
    }

    /// What happened since it was last asked, a line each.
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

    /// Takes leave of the servers.
    pub fn finish(&self) {
        self.0.iter().for_each(|network| network.service.finish());
    }
}
