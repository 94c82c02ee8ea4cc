//! The supervisor: it owns everything that the members of the group share, and stays until the last
//! descendant has ended.
//!
//! The supervisor is one thread with one poll loop. The decisions are in the files beside this one,
//! which holds them together.

mod bounds;
mod change;
mod connection;
mod due;
mod ending;
mod execs;
mod failures;
mod forwards;
mod freeze;
mod grants;
mod members;
mod pagers;
mod pressure;
mod publish;
mod shortage;
mod swapoff;
mod swapon;
mod telling;
mod tiers;
mod unmanaged;
mod userfaults;
mod vigil;
mod weights;

use crate::{
    STATUS_REFUSED,
    clusters::Clusters,
    course::{Course, thrashing::WhenThrashing},
    devices::{PreparedDevices, networks::Networks},
    ipc::{
        description::Description,
        group_memory::GroupMemory,
        link::{Link, Packet, Remains},
    },
    processes::{
        census::Census,
        descriptors,
        inject::Injector,
        orphans::Orphans,
        proc,
        signals::{Arrived, Inherited, Signals},
        start::Start,
    },
    recording::{self, Recording},
    report::{outcome::Outcome, outputs::Outputs, totals::Totals},
};
use bounds::Offence;
use change::LimitChange;
use connection::{Connection, PendingFork};
use execs::Execs;
use folioswap_group::{
    counters::Counter,
    decisions::{Failures, Scope, Way},
    folio_orders::FolioOrders,
};
use folioswap_slots::DeviceMask;
use forwards::Forwards;
use freeze::Frozen;
use pagers::Settling;
use pressure::PressureMeter;
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use shortage::Shortage;
use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};
use swapoff::Swapoff;
use swapon::Swapon;

/// The time between two probes of memory that may be gone.
const PROBE_INTERVAL: Duration = Duration::from_millis(200);
/// The time between two looks at the charge of the group, and at reports that memory is used up.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(25);
/// The time for which clusters that became free are collected, to be punched together.
const PUNCH_INTERVAL: Duration = Duration::from_millis(200);

/// The nice value of the supervisor while it empties the rings of a trace: that of pagers.
const RECORDING_NICE: i32 = -10;

/// Everything that was prepared and checked before the fork.
pub struct Settings {
    /// The limit in bytes.
    pub limit: u64,
    /// The bytes of it that are left to the kernel: a cgroup counts page tables too, and kills.
    pub reserve: u64,
    /// The memory that the limit counts.
    pub scope: Scope,
    /// The folio sizes that members may make.
    pub folio_orders: FolioOrders,
    /// The way in which programs are managed.
    pub way: Way,
    /// `/dev/userfaultfd`, for forked children of users who may not open it.
    pub userfault_device: Option<OwnedFd>,
    /// The readahead from slow devices, as a power of two of pages.
    pub page_cluster: u32,
    /// What is done about a run that does little but wait.
    pub when_thrashing: WhenThrashing,
    /// The name, the program and the start, for processes that look.
    pub description: Description,
    /// The memories of the new group.
    pub memory: GroupMemory,
    /// The swap devices.
    pub devices: PreparedDevices,
    /// The devices that take no pages at first: their tiers are not among those of the group.
    pub masked_devices: DeviceMask,
    /// The most bytes that members may write into a file.
    pub file_bytes: u64,
    /// The listening sockets of the group: one with an abstract name, one beside the agent.
    pub listeners: Vec<OwnedFd>,
    /// What is written and printed at the end.
    pub outputs: Outputs,
    /// Whether members and the supervisor check every invariant now and then.
    pub validate: bool,
    /// Whether everything that may leave leaves at once, for tests.
    pub evict_all: bool,
    /// Calls of members that fail at random (for tests).
    pub failures: Failures,
    /// The recording of every allocation and free, with `--trace`.
    pub recording: Option<Recording>,
    /// When the user started `run`.
    pub started: Instant,
}

/// The state of the supervisor.
pub struct Supervisor {
    settings: Settings,
    link: Option<Link>,
    signals: Signals,
    front: u32,
    cmd: u32,
    /// Whether CMD has been a member that got its userfaultfd, so that its memory was managed.
    cmd_was_member: bool,
    ended: Option<Outcome>,
    settling: Option<Settling>,
    reported: bool,
    agent: Option<OwnedFd>,
    /// What puts the agent into programs that cannot preload it.
    injector: Option<Arc<Injector>>,
    execs: Arc<Execs>,
    clusters: Clusters,
    networks: Networks,
    connections: Vec<Connection>,
    pending: Vec<PendingFork>,
    orphans: Orphans,
    /// The most connections that are not members.
    others_max: usize,
    /// The processes that misbehaved, and how, as far as they were named.
    offences: HashSet<(u32, Offence)>,
    forwards: Forwards,
    census: Census,
    /// The filters of system calls that everything here is under.
    filters: u64,
    /// The memory that no member counts, as the last walk found it, in bytes.
    unmanaged: u64,
    unmanaged_peak: u64,
    excess_walks: u32,
    shortage: Shortage,
    pages_lost: u64,
    /// Whether a process that confines itself was named.
    has_named_confined: bool,
    totals: Totals,
    course: Course,
    weights: weights::Weights,
    recording: Option<Recording>,
    swapoff: Option<Swapoff>,
    swapon: Option<Swapon>,
    limit_change: Option<LimitChange>,
    pressure: PressureMeter,
    frozen: Option<Frozen>,
    next_drain: Instant,
    next_serial: u64,
    next_probe: Instant,
    next_punch: Instant,
    next_sample: Instant,
}

/// Starts CMD and supervises the group to its end. It runs in the process that the front forked,
/// and ends that process.
pub fn run(settings: Settings, start: Start, link: Link, inherited: &Inherited, front: u32) -> ! {
    proc::become_subreaper();
    let signals = match Signals::new() {
        Ok(signals) => signals,
        Err(error) => refuse(&link, &format!("signalfd: {error}"), STATUS_REFUSED),
    };
    settings.publish();
    let started = match start.start(inherited, &signals) {
        Ok(started) => started,
        Err(error) => refuse(&link, &error.to_string(), error.status()),
    };
    let now = Instant::now();
    let mut supervisor = Supervisor::new(settings, signals, started.pid, now);
    supervisor.link = Some(link);
    supervisor.front = front;
    supervisor.agent = start.agent;
    supervisor.injector = start.injector;
    for signal in started.reached_both.into_iter().filter(Arrived::is_forwarded) {
        supervisor.forwards.arrived(signal, now);
    }
    supervisor.detach();
    // The limit of descriptors is raised by now.
    supervisor.others_max = bounds::others_max();
    supervisor.start_networks();
    if let Ok(memory) = supervisor.settings.memory.map_again() {
        vigil::start(memory);
    }
    supervisor.serve()
}

/// Tells the front why CMD was not started, and exits.
fn refuse(link: &Link, why: &str, status: i32) -> ! {
    link.say(&format!("folioswap: {why}\n"));
    link.send(&Packet::Ended(status, Remains::Nothing));
    std::process::exit(status)
}

impl Settings {
    /// The limit that members keep, in bytes.
    fn bound(&self) -> u64 {
        self.limit - self.reserve
    }
}

impl Supervisor {
    /// The supervisor of a group that has just begun, with this process as CMD.
    fn new(mut settings: Settings, signals: Signals, cmd: u32, now: Instant) -> Self {
        let recording = settings.recording.take();
        let devices = settings.devices.devices.iter_mut();
        let clusters = devices.map(|device| (device.description, device.shared.take())).collect();
        Supervisor {
            clusters: Clusters::new(clusters),
            networks: Networks::default(),
            course: Course::new(settings.outputs.record(settings.started)),
            weights: weights::Weights::default(),
            settings,
            link: None,
            signals,
            front: 0,
            cmd,
            cmd_was_member: false,
            ended: None,
            settling: None,
            reported: false,
            agent: None,
            injector: None,
            execs: Arc::default(),
            connections: Vec::new(),
            pending: Vec::new(),
            orphans: Orphans::default(),
            others_max: usize::MAX,
            offences: HashSet::new(),
            forwards: Forwards::default(),
            census: Census::new(now),
            filters: proc::own_filters(),
            unmanaged: 0,
            unmanaged_peak: 0,
            excess_walks: 0,
            shortage: Shortage::new(Instant::now()),
            pages_lost: 0,
            has_named_confined: false,
            totals: Totals::new(),
            recording,
            swapoff: None,
            swapon: None,
            limit_change: None,
            pressure: PressureMeter::new(now),
            frozen: None,
            next_drain: now,
            next_serial: 1,
            next_probe: now + PROBE_INTERVAL,
            next_punch: now + PUNCH_INTERVAL,
            next_sample: now,
        }
    }

    /// Lets go of the user's descriptors, directory and limits; CMD has its own.
    fn detach(&self) {
        descriptors::leave_standard();
        let settings = &self.settings;
        let mut kept: Vec<BorrowedFd<'_>> = settings.memory.descriptors().to_vec();
        kept.push(self.signals.as_fd());
        kept.extend(settings.listeners.iter().map(AsFd::as_fd));
        kept.extend(self.link.iter().map(AsFd::as_fd));
        kept.extend(self.clusters.files().map(AsFd::as_fd));
        kept.extend(
            settings.devices.devices.iter().filter_map(|device| device.directory.as_ref()).map(AsFd::as_fd),
        );
        let networks = settings.devices.devices.iter().filter_map(|device| device.network.as_ref());
        kept.extend(networks.map(|network| network.descriptor()));
        kept.extend(settings.outputs.descriptors());
        kept.extend(self.recording.as_ref().map(Recording::fd));
        kept.extend(self.agent.as_ref().map(AsFd::as_fd));
        kept.extend(settings.userfault_device.as_ref().map(AsFd::as_fd));
        descriptors::close_all_but(&kept);
        let _ = std::env::set_current_dir("/");
        let files = getrlimit(Resource::Nofile);
        let _ = setrlimit(Resource::Nofile, Rlimit { current: files.maximum, maximum: files.maximum });
        let _ = rustix::thread::set_name(c"folioswap-sup");
        if self.recording.is_some() {
            // The priority of the pagers whose rings are emptied, where it is permitted.
            // SAFETY: changes the nice value of this process.
            let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, RECORDING_NICE) };
        }
        // The memory of the group is the scarce one, and the whole group ends without the
        // supervisor.
        let _ = std::fs::write("/proc/self/oom_score_adj", "-500");
    }

    /// Begins to serve the network devices. Must be called after CMD was started, because this
    /// process has several threads from here on and cannot fork.
    fn start_networks(&mut self) {
        let devices = self.settings.devices.devices.iter_mut().enumerate();
        let prepared = devices.filter_map(|(number, device)| Some((number, device.network.take()?)));
        match Networks::start(prepared) {
            Ok(networks) => self.networks = networks,
            Err(error) => {
                self.close_group();
                match &self.link {
                    Some(link) => refuse(link, &error.to_string(), STATUS_REFUSED),
                    None => std::process::exit(STATUS_REFUSED),
                }
            }
        }
    }

    fn serve(mut self) -> ! {
        loop {
            let dead = self.wait();
            let now = Instant::now();
            // The signals are taken before the children are looked at: the word of a child that
            // ends after the look stays, and ends the next wait.
            self.take_signals(now);
            let remains = self.reap();
            // Whoever ended after the wait, and was the last, is seen by another look: what it used
            // is free now, which the report is to say.
            let dead = if remains == Remains::Nothing { self.wait_for(Duration::ZERO) } else { dead };
            self.take_packets(now);
            self.hear(&dead, now);
            self.work_due(now);
            if now >= self.census.due() {
                self.count_unmanaged(now);
            }
            if let Some(outcome) = self.settled_outcome(remains, now) {
                self.report(outcome, remains);
            }
            if remains == Remains::Nothing && self.reported {
                self.networks.finish();
                // A prepared file outlives the run, so `discard` must hold for its last clusters
                // too.
                self.clusters.punch(self.settings.memory.writer());
                std::process::exit(0);
            }
        }
    }

    /// Hears whoever connects or speaks, and settles what that leads to, with a bounded amount of
    /// work. `dead` are the connections whose process has ended.
    fn hear(&mut self, dead: &[u64], now: Instant) {
        self.accept(now);
        self.receive_all(now);
        self.end_dead(dead, now);
        self.resolve_waiting(now);
        self.bound_connections(now);
        self.orphans.read(now);
    }

    /// Waits for children that changed. The tree has nothing left when this process has no child
    /// any more, neither CMD nor an adopted one. The stops of what another thread traces are that
    /// thread's.
    fn reap(&mut self) -> Remains {
        loop {
            let mut status = 0;
            // SAFETY: writes the status to a local.
            let pid = unsafe {
                libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::WUNTRACED | libc::__WNOTHREAD)
            };
            match pid {
                0 => return Remains::Descendants,
                -1 if std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
                -1 => return Remains::Nothing,
                _ if self.injector.as_ref().is_some_and(|it| it.hand_over(pid as u32, status)) => {}
                _ if pid as u32 == self.cmd => match Outcome::from_wait(status) {
                    Some(outcome) => self.ended = self.ended.or(Some(outcome)),
                    // The front stops with a CMD that somebody has stopped, and not with one that
                    // is frozen.
                    None if self.frozen.is_some() => {}
                    None => self.link.iter().for_each(|link| link.send(&Packet::Stopped(self.cmd))),
                },
                _ => {}
            }
        }
    }

    fn take_signals(&mut self, now: Instant) {
        while let Some(signal) = self.signals.next() {
            if signal.is_forwarded() && self.link.is_some() {
                self.forwards.arrived(signal, now);
            }
        }
    }

    fn take_packets(&mut self, now: Instant) {
        while let Some(link) = &self.link {
            match link.receive() {
                Ok(Packet::Forward(signal)) => self.forwards.asked(signal, now),
                Ok(_) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    self.link = None;
                    if !self.reported {
                        // The front was killed: its group must not outlive it.
                        self.close_group();
                        self.drain_rings();
                        std::process::exit(STATUS_REFUSED);
                    }
                }
            }
        }
    }

    fn work_due(&mut self, now: Instant) {
        for signal in self.forwards.take_due(now) {
            if self.ended.is_none() {
                // SAFETY: sends a signal to our own child, which has not been waited for.
                unsafe { libc::kill(self.cmd as libc::pid_t, signal) };
            }
        }
        self.tend_execs();
        for message in self.networks.messages() {
            self.say(&message);
        }
        for message in self.orphans.end_condemned(now) {
            self.say(&message);
        }
        if now >= self.next_sample {
            self.tend_course(now);
            self.tend_shortage(now);
            self.next_sample = now + SAMPLE_INTERVAL;
        }
        if now >= self.next_drain {
            self.drain_rings();
            self.next_drain = now + recording::INTERVAL;
        }
        if now >= self.next_punch {
            for (number, clusters) in self.clusters.take_freed() {
                self.networks.freed(number, clusters.into_iter());
            }
            self.clusters.punch(self.settings.memory.writer());
            self.next_punch = now + PUNCH_INTERVAL;
        }
        if now >= self.next_probe {
            self.orphans.drop_gone();
            self.drop_gone_forks();
            self.forget_weights();
            self.next_probe = now + PROBE_INTERVAL;
        }
        self.tend_swapoff(now);
        self.tend_swapon(now);
        self.tend_limit(now);
        self.tend_pressure(now);
    }

    fn drain_rings(&mut self) {
        if let Some(recording) = &mut self.recording {
            recording.drain(self.connections.iter_mut().filter_map(|connection| connection.ring.as_mut()));
        }
    }

    fn say(&self, text: &str) {
        self.link.iter().for_each(|link| link.say(text));
    }

    /// Checks the counts of the shared devices' clusters, if that is wanted.
    fn validate(&mut self) {
        if !self.settings.validate {
            return;
        }
        let owners = self.connections.iter().map(|connection| &connection.clusters);
        let owners = owners.chain(self.pending.iter().map(|fork| &fork.clusters));
        if let Err(invalid) = self.clusters.validate(owners) {
            self.totals.add(Counter::Violations, 1);
            self.say(&format!("folioswap: invariant violated: {invalid}\n"));
        }
    }
}

#[cfg(test)]
mod tests;
