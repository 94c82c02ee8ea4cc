//! The sockets (*links*) by which the members of a group reach a store. One thread takes their
//! requests, and the client's threads answer.
//!
//! See [`folioswap_group::swap_link`] for the messages. A member that is killed leaves nothing but
//! a socket that ends. A request is carried out where its owner may read and write ([`Access`]),
//! and nowhere else: the store decrypts for everybody.

mod rights;

pub use rights::Access;

use crate::buffers;
use crate::client::{Event, Statistics};
use crate::error::RequestError;
use crate::store::Store;
use folioswap_group::swap_link::{Command, DATA_MAX, REQUEST_BYTES, Reply, Request};
use folioswap_group::units::PAGE_SIZE;
use rights::Rights;
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketFlags, SocketType,
    recvmsg, send, socketpair, sockopt,
};
use rustix::process::{Resource, getrlimit};
use std::collections::HashMap;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Ready links that are handled in one round.
const READY: usize = 64;
/// Descriptors that no link uses, because reconnecting needs them.
const SPARE_DESCRIPTORS: u64 = 32;
/// The longest time that saying goodbye to a server may take.
const FAREWELL: Duration = Duration::from_millis(500);

/// Links and their store. Dropping it ends links and threads.
pub struct Service {
    link_server: Arc<LinkServer>,
}

/// Stands for [`LinkServer::end`] among the numbers of the links.
const END: u64 = u64::MAX;

struct LinkServer {
    store: Arc<Store>,
    epoll: OwnedFd,
    /// Readable when the service is to end.
    end: OwnedFd,
    /// A link whose descriptor has this number or a higher one is refused.
    descriptors_max: u64,
    links: Mutex<Links>,
    /// Held from taking a request off a link until the request is under way or waits in the store.
    taking: Mutex<()>,
}

/// The owner of links: a member, with its first link and those that it made itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkOwner(u64);

#[derive(Clone)]
struct Link {
    socket: Arc<OwnedFd>,
    owner: LinkOwner,
    rights: Arc<Rights>,
}

#[derive(Default)]
struct Links {
    next: u64,
    next_owner: u64,
    owners: HashMap<LinkOwner, Arc<Rights>>,
    open: HashMap<u64, Link>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Service {
    /// Begins to serve.
    ///
    /// # Errors
    /// No descriptor is free, or no thread can be started.
    pub fn start(store: Arc<Store>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let end = eventfd(0, EventfdFlags::CLOEXEC)?;
        epoll::add(&epoll, &end, epoll::EventData::new_u64(END), epoll::EventFlags::IN)?;
        let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let descriptors_max = files.saturating_sub(SPARE_DESCRIPTORS);
        let link_server = Arc::new(LinkServer {
            store,
            epoll,
            end,
            descriptors_max,
            links: Mutex::default(),
            taking: Mutex::new(()),
        });
        let serving = Arc::clone(&link_server);
        thread::Builder::new()
            .name("nbd-links".into())
            .stack_size(256 << 10)
            .spawn(move || serving.serve())?;
        Ok(Service { link_server })
    }

    /// Makes the first link of a new member, which may reach this much, and returns the member's
    /// end.
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn new_link(&self, access: Access) -> io::Result<(OwnedFd, LinkOwner)> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let _ = sockopt::set_socket_send_buffer_size(&theirs, DATA_MAX);
        let rights = Arc::new(Rights::new(access));
        let owner = {
            let mut links = lock(&self.link_server.links);
            links.next_owner += 1;
            LinkOwner(links.next_owner)
        };
        self.link_server.add(ours, owner, &rights, self.link_server.descriptors_max)?;
        lock(&self.link_server.links).owners.insert(owner, rights);
        Ok((theirs, owner))
    }

    /// Lets a member read and write clusters, by their numbers on the device, on all of its links.
    /// To be called before the member learns that it has them.
    pub fn grant(&self, owner: LinkOwner, clusters: impl Iterator<Item = u32>) {
        if let Some(rights) = self.rights(owner) {
            rights.grant(clusters);
        }
    }

    /// Lets a member read and write clusters no more. Requests that were taken go on. To be called
    /// before somebody else gets them.
    pub fn withdraw(&self, owner: LinkOwner, clusters: impl Iterator<Item = u32>) {
        if let Some(rights) = self.rights(owner) {
            rights.withdraw(clusters);
        }
        // As in `forget`: a request that was allowed before is in the store by now.
        drop(lock(&self.link_server.taking));
    }

    fn rights(&self, owner: LinkOwner) -> Option<Arc<Rights>> {
        lock(&self.link_server.links).owners.get(&owner).cloned()
    }

    /// Ends the links of a member that has ended. Its requests that were not yet taken are dropped:
    /// when this returns, no request of it can come after those of the next owner of its slots.
    /// Requests that were taken go on, before those of the next owner.
    pub fn forget(&self, owner: LinkOwner) {
        let link_server = &self.link_server;
        {
            let mut links = lock(&link_server.links);
            links.owners.remove(&owner);
            for (_, link) in links.open.extract_if(|_, link| link.owner == owner) {
                let _ = epoll::delete(&link_server.epoll, &*link.socket);
            }
        }
        // A thread that found a link before takes at most one request of it, and has done so by
        // now.
        drop(lock(&link_server.taking));
    }

    /// Number of open links.
    pub fn links(&self) -> usize {
        lock(&self.link_server.links).open.len()
    }

    /// Says that a cluster has no owner any more; `told` chooses whether the server hears of it.
    pub fn cluster_freed(&self, cluster: u32, told: Told) {
        match told {
            Told::Server => self.link_server.store.trim_cluster(cluster.into()),
            Told::Nobody => self.link_server.store.forget_cluster(cluster.into()),
        }
    }

    /// The events since the last call.
    pub fn take_events(&self) -> Vec<Event> {
        self.link_server.store.take_events()
    }

    /// The counters.
    pub fn statistics(&self) -> Statistics {
        self.link_server.store.statistics()
    }

    /// Says goodbye to the server. Waits for it for at most half a second.
    pub fn finish(&self) {
        self.link_server.store.finish(FAREWELL);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // A member that waits for an answer learns that none will come.
        lock(&self.link_server.links).open.clear();
        // The write can fail only when the eventfd was written to before.
        let _ = rustix::io::write(&self.link_server.end, &1_u64.to_ne_bytes());
    }
}

/// The receiver of the news that a cluster is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The server may give the space to others.
    Server,
    /// Only the tables of this process shrink.
    Nobody,
}

/// Whether a link can be used further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinkState {
    Open,
    /// The socket has ended, or its member violates the protocol.
    Ended,
}

impl LinkServer {
    fn add(
        &self,
        link: OwnedFd,
        owner: LinkOwner,
        rights: &Arc<Rights>,
        descriptors_max: u64,
    ) -> io::Result<()> {
        // The kernel gives the lowest free number.
        if link.as_raw_fd() as u64 >= descriptors_max {
            return Err(Errno::MFILE.into());
        }
        let _ = sockopt::set_socket_send_buffer_size(&link, DATA_MAX);
        let socket = Arc::new(link);
        let mut links = lock(&self.links);
        let token = links.next;
        links.next += 1;
        epoll::add(&self.epoll, &*socket, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?;
        links.open.insert(token, Link { socket, owner, rights: Arc::clone(rights) });
        Ok(())
    }

    fn serve(&self) {
        let mut events = Vec::with_capacity(READY);
        let mut message = vec![0; REQUEST_BYTES + DATA_MAX];
        loop {
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            for event in &events {
                let token = event.data.u64();
                if token == END {
                    return;
                }
                let _is_taken = lock(&self.taking);
                let Some(link) = lock(&self.links).open.get(&token).cloned() else { continue };
                if self.take_request(&link, &mut message) == LinkState::Ended
                    && lock(&self.links).open.remove(&token).is_some()
                {
                    let _ = epoll::delete(&self.epoll, &*link.socket);
                }
            }
        }
    }

    /// Takes one request off a link.
    fn take_request(&self, Link { socket: link, owner, rights }: &Link, message: &mut [u8]) -> LinkState {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = match recvmsg(&**link, &mut [IoSliceMut::new(message)], &mut ancillary, flags) {
            Ok(received) => received,
            Err(Errno::INTR | Errno::AGAIN) => return LinkState::Open,
            Err(_) => return LinkState::Ended,
        };
        let carried = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
            _ => None,
        });
        let Some(message) = message.get(..received.bytes) else { return LinkState::Ended };
        let Some(request) = Request::decode(message) else { return LinkState::Ended };
        let Request { cookie, offset, length, .. } = request;
        let data = &message[REQUEST_BYTES..];
        let link = Arc::clone(link);
        let (page, count) = (offset / PAGE_SIZE as u64, u64::from(length) / PAGE_SIZE as u64);
        let is_pages = offset.is_multiple_of(PAGE_SIZE as u64) && (length as usize).is_multiple_of(PAGE_SIZE);
        match request.command {
            // A request without a socket attaches nothing; the member's end fails at its first use.
            Command::Attach => {
                // Half of the descriptors are kept for first links, without which a new member
                // cannot run.
                let descriptors_max = self.descriptors_max / 2;
                carried.into_iter().for_each(|link| drop(self.add(link, *owner, rights, descriptors_max)));
            }
            Command::Read | Command::Write if is_pages && !rights.allow(page, count) => {
                answer(&link, cookie, &Err(RequestError::NotGranted));
            }
            Command::Read if is_pages && data.is_empty() => {
                let done = move |result: Result<Vec<u8>, _>| {
                    answer(&link, cookie, &result);
                    result.into_iter().for_each(buffers::give_back);
                };
                self.store.read(page, count, Box::new(done));
            }
            Command::Write if is_pages && data.len() == length as usize => {
                let done =
                    move |result: Result<Vec<u8>, _>| answer(&link, cookie, &result.map(|_| Vec::new()));
                let mut pages = buffers::take(data.len());
                pages.copy_from_slice(data);
                self.store.write(page, pages, Box::new(done));
            }
            Command::Read | Command::Write => {
                answer(&link, cookie, &Err(RequestError::Range { offset, length: length.into() }));
            }
        }
        LinkState::Open
    }
}

/// Answers on a link. It never blocks, because a link has at most one answer under way, and its
/// buffer has room for that.
fn answer(link: &OwnedFd, cookie: u64, result: &Result<Vec<u8>, RequestError>) {
    let reply = |error: Errno| Reply { error: error.raw_os_error() as u32, cookie }.encode();
    let done = Reply { error: 0, cookie }.encode();
    let failed;
    let bytes: &[u8] = match result {
        Ok(data) if data.is_empty() => &done,
        Ok(data) => data,
        Err(error) => {
            failed = reply(errno(*error));
            &failed
        }
    };
    // A member that is gone needs no answer.
    let _ = send(link, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// The errno by which a member learns of a failure.
const fn errno(error: RequestError) -> Errno {
    match error {
        RequestError::Server(28) => Errno::NOSPC,
        RequestError::Server(_) => Errno::IO,
        RequestError::Stopped => Errno::CONNRESET,
        RequestError::TimedOut => Errno::TIMEDOUT,
        RequestError::Away => Errno::HOSTDOWN,
        RequestError::Replaced(_) => Errno::NODEV,
        RequestError::Range { .. } => Errno::INVAL,
        RequestError::Unsupported => Errno::NOTSUP,
        RequestError::Forged => Errno::BADMSG,
        RequestError::Missing => Errno::NODATA,
        RequestError::NotGranted => Errno::ACCESS,
    }
}
