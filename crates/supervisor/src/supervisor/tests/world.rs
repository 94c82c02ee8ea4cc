//! A supervisor, processes that connect to it, and what must hold whatever they do.
//!
//! Time is counted and not waited for: the supervisor is told that it is later. What the handler
//! does is the same as in a run, without the end of the group: the limit is out of reach, and CMD
//! says nothing.

use super::{
    heap,
    pool::Pool,
    puppets::{Puppet, Puppets},
    steps::Costly,
};
use crate::{
    devices::{self, Wanted},
    ipc::{
        description::Description,
        group_memory::GroupMemory,
        link::{Link, Packet, Remains},
        wire,
    },
    processes::{limits::Limits, peer::Peer, signals::Signals},
    recording::Recording,
    report::outcome::Outcome,
    supervisor::{
        Settings, Supervisor,
        connection::{Connection, Kinship, Role},
    },
    swap_option,
};
use folioswap_group::{
    decisions::{Failures, Scope, Way},
    folio_orders::FolioOrders,
    protocol::{Kind, Message},
};
use folioswap_slots::DeviceMask;
use rustix::{
    fd::OwnedFd,
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
};
use std::{
    ffi::OsStr,
    time::{Duration, Instant},
};

/// The most connections at a time.
pub const CLIENTS: usize = 40;
/// The time after which every request must have been answered, in steps, each with a round of the
/// poll loop: a swapoff that makes no progress takes longest.
const PATIENCE_MS: [u64; 9] = [0, 0, 25, 100, 300, 2100, 100, 31_000, 100];
/// The devices of a group: the store of each member, two in turn, and one below them. All are in
/// memory, so a cluster costs nothing until it is written, and nobody writes one.
const DEVICES: [&str; 4] =
    ["zram,prio=9", "ram,size=24M,prio=5", "ram,size=10M,prio=5", "ram,size=4M,prio=1"];
/// A supervisor whose processes have left may have so many bytes more than at its start: tables
/// that keep their size, and the names of the first offenders.
const HEAP_MAX: usize = 512 << 10;
/// Rounds within which connections that have ended are gone, with the messages that they left,
/// unless a puppet is slow.
const ROUNDS: usize = 16;

/// The other end of a connection.
pub struct Client {
    pub socket: OwnedFd,
    /// The serial of the connection, if the supervisor took it.
    pub serial: Option<u64>,
    /// Requests that have no answer yet.
    pub owed: usize,
    pub state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum State {
    Open,
    Closed,
}

/// Whether a group ends with the devices with which it began.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Devices {
    Same,
    /// Each has descriptors, and the first that seals its pages leaves buffers for the next.
    Others,
}

/// A supervisor at work.
pub struct World<'a> {
    pub supervisor: Supervisor,
    front: Link,
    pub group: String,
    pub puppets: &'a mut Puppets,
    pub pool: &'a Pool,
    honest: Client,
    pub clients: Vec<Client>,
    pub now: Instant,
    /// A cluster that was granted lately.
    pub cluster: u32,
    pub costly: Costly,
    /// What was seen, for the choice of inputs.
    pub seen: Vec<u32>,
    /// Messages that were sent.
    pub messages: u64,
    /// Descriptors and bytes of the heap at the start, and of how many devices.
    descriptors: usize,
    bytes: usize,
    devices: (usize, usize),
}

impl<'a> World<'a> {
    /// Begins a group; the bits of `settings` say how it is set up.
    pub fn new(settings: u8, puppets: &'a mut Puppets, pool: &'a Pool) -> Self {
        let group = wire::new_name().expect("a name");
        let now = Instant::now();
        let settings = settings_of(settings, &group, now);
        settings.publish();
        let signals = Signals::new().expect("signals");
        let mut supervisor = Supervisor::new(settings, signals, puppets.honest.pid, now);
        let (ours, front) = Link::pair().expect("a link");
        supervisor.link = Some(ours);
        supervisor.others_max = CLIENTS / 2;
        let (socket, other) = pair();
        let honest = Client { socket, serial: None, owed: 0, state: State::Open };
        let mut world = World {
            supervisor,
            front,
            group,
            puppets,
            pool,
            honest,
            clients: Vec::new(),
            now,
            cluster: 0,
            costly: Costly::new(),
            seen: Vec::new(),
            messages: 0,
            descriptors: 0,
            bytes: 0,
            devices: (0, 0),
        };
        let connection = connection(other, &world.puppets.honest, Kinship::Descendant, now);
        world.honest.serial = Some(world.take(connection));
        wire::send(&world.honest.socket, &Message::new(Kind::Hello, [0; 3]), &[]).expect("sent");
        world.round();
        let welcome = wire::receive(&world.honest.socket).expect("received").expect("an answer");
        assert_eq!(welcome.message.kind(), Some(Kind::Welcome));
        drop(welcome);
        world.descriptors = open_descriptors();
        world.bytes = heap::bytes_in_use();
        world.devices = world.devices();
        world
    }

    /// Adds a connection as accepting it would.
    pub fn take(&mut self, connection: Connection) -> u64 {
        let serial = self.supervisor.next_serial;
        self.supervisor.connections.push(Connection { serial, ..connection });
        self.supervisor.next_serial += 1;
        serial
    }

    /// Takes all answers of a client, and the end of its connection.
    pub fn read(&mut self, index: usize) {
        let client = &mut self.clients[index];
        while client.state == State::Open {
            match wire::receive(&client.socket) {
                Ok(Some(answer)) => {
                    client.owed = client.owed.saturating_sub(1);
                    self.cluster = answer.message.clusters().first().copied().unwrap_or(self.cluster);
                    self.seen
                        .push(0x100_0000 | answer.message.kind << 8 | answer.message.words[0].min(9) as u32);
                }
                Err(Errno::AGAIN) => return,
                Ok(None) | Err(_) => {
                    client.state = State::Closed;
                    self.seen.push(0x200_0000);
                }
            }
        }
    }

    fn read_all(&mut self) {
        (0..self.clients.len()).for_each(|index| self.read(index));
    }

    /// A round in which a member that behaves is answered: it asks for a cluster, and gives it
    /// back.
    pub fn round_for_honest(&mut self) {
        let want = Message::new(Kind::WantClusters, [1, u64::MAX, 0]);
        wire::send(&self.honest.socket, &want, &[]).expect("its connection is open");
        self.round();
        let answer = wire::receive(&self.honest.socket).expect("answered").expect("a member").message;
        assert_eq!(answer.kind(), Some(Kind::Clusters));
        let drop = Message::new(Kind::DropClusters, [0; 3]).with_clusters(answer.clusters());
        wire::send(&self.honest.socket, &drop, &[]).expect("its connection is open");
    }

    /// One round of the poll loop.
    pub fn round(&mut self) {
        let dead = self.supervisor.wait_for(Duration::ZERO);
        self.supervisor.hear(&dead, self.now);
        self.supervisor.work_due(self.now);
    }

    /// Takes the messages to the user.
    pub fn take_texts(&mut self) {
        while let Ok(packet) = self.front.receive() {
            let Packet::Text(text) = packet else { continue };
            let text = String::from_utf8(text).expect("text");
            assert!(
                text.chars().all(|c| c == '\n' || !c.is_control()),
                "nothing commands a terminal: {text:?}"
            );
            assert!(!text.contains("invariant violated: cluster"), "the books agree: {text}");
        }
    }

    /// Each request is answered, or its connection closed, within the patience of the protocol.
    pub fn settle(&mut self) {
        for pause in PATIENCE_MS {
            self.now += Duration::from_millis(pause);
            self.round_for_honest();
            self.end_swapon();
            self.read_all();
            if self.clients.iter().all(Client::is_settled) {
                break;
            }
        }
        for client in self.clients.iter().filter(|client| !client.is_settled()) {
            let role = self.role_of(client);
            assert!(role.is_some_and(|role| self.may_wait(role)), "{} unanswered; {role:?}", client.owed);
        }
    }

    fn role_of(&self, client: &Client) -> Option<&Role> {
        let connections = &self.supervisor.connections;
        connections.iter().find(|other| Some(other.serial) == client.serial).map(|found| &found.role)
    }

    /// A child waits for its parent as long as that is a member.
    fn may_wait(&self, role: &Role) -> bool {
        let members = || self.supervisor.connections.iter().filter(|connection| connection.is_member());
        let parent = self.puppets.parent.pid;
        matches!(role, Role::Waiting { parentless: None, .. }) && members().any(|member| member.pid == parent)
    }

    /// Waits for the thread that prepares a device, which takes real time.
    fn end_swapon(&mut self) {
        let begun = Instant::now();
        while self.supervisor.swapon.is_some() {
            assert!(begun.elapsed() < Duration::from_secs(10), "a device is prepared in time");
            std::thread::sleep(Duration::from_micros(50));
            self.now += Duration::from_millis(10);
            self.round();
        }
    }

    /// Goes on until one connection is left, for 10 s at most.
    fn round_until_one_is_left(&mut self) {
        let begun = Instant::now();
        for round in 0.. {
            self.round();
            if self.supervisor.connections.len() == 1 || begun.elapsed() > Duration::from_secs(10) {
                break;
            }
            if round > ROUNDS {
                // A puppet may not have closed its copy of a socket yet.
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Everybody leaves but the member that behaves; nothing of them is left.
    pub fn leave(&mut self) {
        self.clients.clear();
        self.round_until_one_is_left();
        self.end_swapon();
        let left: Vec<_> = self.supervisor.connections.iter().map(|left| (left.serial, &left.role)).collect();
        assert_eq!(left.len(), 1, "the others are gone: {left:?}");
        assert_eq!(Some(left[0].0), self.honest.serial);
        assert!(self.supervisor.swapoff.is_none(), "whoever asked for it is gone");
        let owners = self.supervisor.connections.iter().map(|connection| &connection.clusters);
        let owners = owners.chain(self.supervisor.pending.iter().map(|fork| &fork.clusters));
        assert_eq!(self.supervisor.clusters.validate(owners), Ok(()));
        self.puppets.mend();
    }

    /// Ends the group; the supervisor has no more than at its start, as far as no device has come
    /// or gone.
    pub fn end(mut self) -> Devices {
        // Memory that somebody still holds goes with its process.
        self.puppets.parent.end();
        self.puppets.child.end();
        self.puppets.nobody.end();
        self.puppets.faulting.end();
        self.puppets.mend();
        for _ in 0..3 {
            self.now += Duration::from_millis(500);
            self.round();
        }
        self.round_until_one_is_left();
        self.supervisor.count_unmanaged(self.now);
        assert!(self.supervisor.pending.is_empty() && self.supervisor.orphans.is_empty());
        assert_eq!(self.supervisor.connections.len(), 1);
        assert_eq!(self.supervisor.clusters.used().iter().sum::<u32>(), 0, "all clusters are free");
        let devices = if self.devices() == self.devices { Devices::Same } else { Devices::Others };
        if devices == Devices::Same {
            wait_until_open(self.descriptors);
            let grown = heap::bytes_in_use().saturating_sub(self.bytes);
            assert!(grown < HEAP_MAX, "{grown} bytes more than at the start");
        }
        self.supervisor.report(Outcome::Exited(0), Remains::Descendants);
        self.take_texts();
        devices
    }

    /// The devices that the group has had, and those that it has open.
    fn devices(&self) -> (usize, usize) {
        (self.supervisor.settings.devices.devices.len(), self.supervisor.clusters.files().count())
    }
}

/// What a supervisor is told at its start.
fn settings_of(bits: u8, group: &str, now: Instant) -> Settings {
    let swap = DEVICES.map(|text| swap_option::parse(OsStr::new(text)).expect("an option"));
    let wanted = Wanted { swap: &swap, swap_dir: None, swap_max: None };
    Settings {
        limit: 1 << 60,
        reserve: 1 << 20,
        scope: if bits & 1 == 0 { Scope::Total } else { Scope::Resident },
        folio_orders: FolioOrders::ALL,
        way: Way::Kernel,
        userfault_device: None,
        page_cluster: 3,
        when_thrashing: Default::default(),
        description: Description::new(None, &["puppet".into()]),
        memory: GroupMemory::create().expect("memory"),
        devices: devices::prepare_for_one(wanted, &Limits::capture()).expect("devices"),
        masked_devices: DeviceMask::NONE,
        file_bytes: u64::MAX,
        listeners: vec![wire::listen_as(group).expect("a socket")],
        outputs: crate::report::outputs::Outputs {
            printed: crate::report::Printed::All,
            title: String::new(),
            json: None,
            report: None,
            timeline: None,
        },
        validate: true,
        evict_all: false,
        failures: Failures::default(),
        recording: (bits & 14 == 2).then(|| Recording::create("/dev/null".into()).expect("opens")),
        started: now,
    }
}

/// A connection of a puppet that has said nothing.
pub fn connection(socket: OwnedFd, puppet: &Puppet, kinship: Kinship, now: Instant) -> Connection {
    let process = puppet.process.try_clone().expect("duplicated");
    Connection::new(socket, 0, Peer { pid: puppet.pid, user: puppet.user, process }, kinship, now)
}

impl Client {
    fn is_settled(&self) -> bool {
        self.state == State::Closed || self.owed == 0
    }
}

pub fn pair() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("sockets")
}

/// The descriptors of this process.
pub fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("proc").count()
}

/// Waits until so many descriptors are open: threads of devices that have gone close theirs last.
pub fn wait_until_open(expected: usize) {
    let begun = Instant::now();
    while open_descriptors() != expected {
        let found = open_descriptors();
        assert!(begun.elapsed() < Duration::from_secs(10), "{found} descriptors, not {expected}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
