//! `folioswap run`: everything is prepared and checked here, in the process that the user started; then it forks.
//!
//! ```text
//! front       started by the user; its exit status is CMD's; keeps nothing but standard error
//!  └ supervisor    owns segment, swap file, socket; subreaper; stays until the last descendant has ended
//!     └ CMD             and what it starts: the members of the group
//! ```
//!
//! All are in one process group and session, so a terminal's signals reach everybody by themselves. The front is a
//! subreaper as well: should the supervisor be killed, the tree falls to the front, which ends it. Members end themselves
//! when their connection to the supervisor ends. Should the front be killed, the supervisor ends the tree.

use crate::{
    agent, cgroup,
    child::Start,
    cli::RunArguments,
    descriptors, devices,
    doctor::Findings,
    error::Error,
    folio_option, front, host,
    limits::Limits,
    link::Link,
    program,
    shared::SegmentFile,
    signals::{Inherited, Signals},
    size,
    supervisor::{self, Settings, recording::Recording},
    wire,
};
use folioswap_group::{folio_orders::FolioOrders, protocol::GROUP_VARIABLE, segment::Scope};
use rustix::{
    fd::OwnedFd,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with},
    rand::{GetRandomFlags, getrandom},
};
use std::{env, fs::File, time::Instant};

/// Limits above so many times the machine's memory are mistakes.
const LIMIT_PER_RAM_MAX: u64 = 1024;
/// Connections that may wait to be accepted; the system's somaxconn cuts it.
const BACKLOG: i32 = 4096;

/// Runs a program within a limit; returns the status that we exit with.
///
/// # Errors
/// Every refusal, before anything is started.
pub fn run(arguments: &RunArguments, inherited: &Inherited) -> Result<i32, Error> {
    let (settings, start) = prepare(arguments, &inherited.limits)?;
    let (ours, theirs) = Link::pair().map_err(Error::system("socketpair"))?;
    let stderr = descriptors::saved_stderr();
    // Blocked before the fork: no signal is lost between the two.
    let signals = Signals::new().map_err(Error::system("signalfd"))?;
    become_subreaper();
    // SAFETY: this process has a single thread, so the child may do anything that this process may.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(Error::System { doing: "fork", source: std::io::Error::last_os_error() }),
        0 => {
            drop((ours, signals, stderr));
            let front = rustix::process::getppid().map_or(0, |pid| pid.as_raw_pid() as u32);
            supervisor::run(settings, start, theirs, inherited, front);
        }
        supervisor => {
            drop((theirs, settings, start));
            Ok(front::wait_for(supervisor, &ours, &signals, stderr.as_ref()))
        }
    }
}

/// Orphans of the tree below become children of this process.
pub fn become_subreaper() {
    // SAFETY: sets an attribute of this process.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

fn prepare(arguments: &RunArguments, limits: &Limits) -> Result<(Settings, Start), Error> {
    refuse_nesting()?;
    limits.raise()?;
    let limit = limit(arguments)?;
    let name = arguments.command.first().expect("clap requires CMD");
    let program = program::find(name)?;
    let findings = Findings::new();
    if !findings.works() {
        return Err(Error::Host(findings.refusal()));
    }
    let agent = agent::memfd(arguments.agent.as_deref())?;
    let devices = devices::prepare(arguments, limits)?;
    let json = match &arguments.stats_json {
        None => None,
        Some(path) => {
            Some(File::create(path).map_err(|source| Error::StatsFile { path: path.clone(), source })?)
        }
    };
    let segment = SegmentFile::create().map_err(Error::system("memfd_create for the group's segment"))?;
    let scope = Scope::from(arguments.memory_scope);
    let (group, listener) = listen_for_members()?;
    let recording = match &arguments.trace {
        None => None,
        Some(path) => Some(
            Recording::create(path.clone())
                .map_err(|source| Error::TraceFile { path: path.clone(), source })?,
        ),
    };
    let warnings = [devices::warning(&arguments.swap), devices::ram_warning(&arguments.swap, scope)];
    warnings.into_iter().flatten().for_each(|line| eprint!("{line}"));
    let folio_orders = arguments
        .thp
        .as_ref()
        .map_or(FolioOrders::ALL, |option| option.orders(|| host::setting(folio_option::INHERITED)));
    let settings = Settings {
        limit,
        reserve: if arguments.memory.is_some() {
            0
        } else {
            (limit / 8).max(CGROUP_RESERVE_MIN).min(limit / 3)
        },
        scope,
        folio_orders,
        page_cluster: arguments.page_cluster,
        segment,
        devices,
        file_bytes: limits.file_bytes(),
        listener,
        text_wanted: arguments.stats,
        validate: arguments.validate,
        recording,
        json,
        started: Instant::now(),
    };
    Ok((settings, Start { program: program.path, arguments: arguments.command.clone(), group, agent }))
}

/// A group within a group would have two agents in one process.
fn refuse_nesting() -> Result<(), Error> {
    match env::var(GROUP_VARIABLE) {
        // A name left over from a group that has ended does no harm.
        Ok(group) if wire::connect_to(&group).is_ok() => Err(Error::Nested { group }),
        _ => Ok(()),
    }
}

/// Least that is left to the kernel of a cgroup's limit, in bytes.
const CGROUP_RESERVE_MIN: u64 = 16 << 20;

fn limit(arguments: &RunArguments) -> Result<u64, Error> {
    let ram = host::memory_bytes();
    match arguments.memory {
        Some(given) if given / LIMIT_PER_RAM_MAX > ram => {
            Err(Error::LimitTooLarge { given: size::show(given), ram: size::show(ram) })
        }
        Some(given) => Ok(given),
        None => match cgroup::memory_limit() {
            None => Err(Error::NoLimit),
            Some(limit) if limit.bytes < size::LIMIT_MIN => {
                Err(Error::CgroupLimitTooSmall { found: size::show(limit.bytes) })
            }
            Some(limit) => Ok(limit.bytes),
        },
    }
}

/// The group's socket under a new name that nobody guesses.
fn listen_for_members() -> Result<(String, OwnedFd), Error> {
    let mut random = [0_u8; 16];
    getrandom(&mut random, GetRandomFlags::empty()).map_err(Error::system("getrandom"))?;
    let name = format!("folioswap-{:032x}", u128::from_ne_bytes(random));
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listening = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).and_then(|socket| {
        bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        listen(&socket, BACKLOG)?;
        Ok(socket)
    });
    Ok((name, listening.map_err(Error::system("making the group's socket"))?))
}
