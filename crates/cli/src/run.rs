//! `folioswap run`: prepares and checks everything in the process that the user started, then
//! forks.
//!
//! ```text
//! front            started by the user; its exit status is CMD's; keeps only standard error
//!  └ supervisor    owns memory, swap file, socket; subreaper; stays until the tree has ended
//!     └ CMD        with everything that it starts: the members of the group
//! ```
//!
//! All are in one process group and session, so the signals of a terminal reach every process by
//! themselves. The front is a subreaper as well: when the supervisor is killed, the tree falls to
//! the front, which ends it. Members end themselves when their connection to the supervisor ends.
//! When the front is killed, the supervisor ends the tree.

pub mod arguments;
pub mod defaults;
pub mod memory;
mod outputs;

use self::{
    arguments::{AdviseArguments, GroupArguments, RunArguments, StatsArgument},
    defaults::Asked,
    memory::MemoryArgument,
};
use crate::{
    agent,
    cgroup::Limit,
    container_kills::{self, ContainerKills},
    device_warnings,
    doctor::Findings,
    error::Error,
    folio_option,
    front::Front,
    host, swap_tiers,
};
use folioswap_group::{
    decisions::{Scope, Way},
    folio_orders::FolioOrders,
    protocol::GROUP_VARIABLE,
    seat::WEIGHT_DEFAULT,
};
use folioswap_slots::DeviceMask;
use folioswap_supervisor::{
    self as supervisor, Settings,
    devices::{self, Wanted},
    ipc::{description::Description, group_memory::GroupMemory, groups, link::Link, wire},
    processes::{
        descriptors,
        inject::Injector,
        limits::Limits,
        proc,
        program::{self, Boarding},
        signals::{Inherited, Signals},
        start::Start,
        userfault::open_device,
    },
    recording::Recording,
    report::Printed,
    size,
};
use std::{env, iter, sync::Arc, time::Instant};

/// A limit above so many times the machine's memory is taken for a mistake.
const LIMIT_PER_RAM_MAX: u64 = 1024;

/// Runs a program within a limit; returns the exit status of the front.
///
/// # Errors
/// Every refusal, before anything is started.
pub fn run(arguments: RunArguments, inherited: &Inherited) -> Result<i32, Error> {
    let asked = defaults::complete(Asked { group: arguments.group, stats: arguments.stats })?;
    let printed = match asked.stats {
        None | Some(StatsArgument::Off) => Printed::Nothing,
        Some(StatsArgument::Short) => Printed::Summary,
        Some(StatsArgument::All) => Printed::All,
    };
    start(RunArguments { group: asked.group, ..arguments }, printed, inherited)
}

/// Runs a program once within a limit, and says which limit would cost how much.
///
/// # Errors
/// As those of [`run()`].
pub fn advise(arguments: AdviseArguments, inherited: &Inherited) -> Result<i32, Error> {
    let asked = defaults::complete(Asked { group: arguments.group, stats: None })?;
    let arguments = RunArguments {
        // The table is of a whole run, however slow.
        group: GroupArguments { thrashing: None, ..asked.group },
        stats_json: arguments.stats_json,
        command: arguments.command,
        ..RunArguments::default()
    };
    start(arguments, Printed::Advice, inherited)
}

fn start(arguments: RunArguments, printed: Printed, inherited: &Inherited) -> Result<i32, Error> {
    let container = ContainerKills::begin();
    let limit_of_container = container.as_ref().map(ContainerKills::limit);
    let (settings, start) = prepare(&arguments, printed, &inherited.limits, limit_of_container)?;
    let (ours, theirs) = Link::pair().map_err(Error::system("socketpair"))?;
    let stderr = descriptors::saved_stderr();
    // Signals are blocked before the fork, so that none is lost between front and supervisor.
    let signals = Signals::new().map_err(Error::system("signalfd"))?;
    proc::become_subreaper();
    // SAFETY: this process has a single thread, so the child may do anything that this process may.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(Error::System { doing: "fork", source: std::io::Error::last_os_error() }),
        0 => {
            drop((ours, signals, stderr, container));
            let front = rustix::process::getppid().map_or(0, |pid| pid.as_raw_pid() as u32);
            supervisor::run(settings, start, theirs, inherited, front);
        }
        supervisor => {
            drop((theirs, settings, start));
            let front = Front { link: &ours, signals: &signals, stderr: stderr.as_ref(), container };
            Ok(front.wait_for(supervisor))
        }
    }
}

fn prepare(
    arguments: &RunArguments,
    printed: Printed,
    limits: &Limits,
    container: Option<&Limit>,
) -> Result<(Settings, Start), Error> {
    refuse_nesting()?;
    limits.raise()?;
    let limit = limit(arguments, container)?;
    let name = arguments.command.first().expect("clap requires CMD");
    let program = program::find(name)?;
    let findings = Findings::new();
    let gate = arguments.group.gate.unwrap_or_default();
    let way = findings.way(gate).ok_or_else(|| Error::Host(findings.refusal_with(gate)))?;
    let injection = findings.check_for_injection(gate);
    let may_inject = injection.is_ok();
    if program.boarding == Boarding::Inject {
        injection?;
    }
    let userfault_device = match way {
        // In the kernel's way for children of what the agent is put into.
        Way::Kernel | Way::GatedForks => open_device().ok(),
        Way::GatedCalls => None,
    };
    let agent = agent::prepare(arguments.agent.as_deref())?;
    let asked = Wanted {
        swap: &arguments.group.swap,
        swap_dir: arguments.group.swap_dir.as_deref(),
        swap_max: arguments.group.swap_max,
    };
    let devices = devices::prepare(asked, limits)?;
    if let Some(name) = &arguments.name {
        refuse_taken(name)?;
    }
    let tiers = arguments.group.swap_tiers.as_deref().unwrap_or("all");
    let priorities: Vec<_> = devices.devices.iter().map(|device| Some(device.description.priority)).collect();
    let in_tiers = swap_tiers::devices_in(tiers, &priorities)?;
    let outputs = outputs::open(arguments, printed)?;
    let memory = GroupMemory::create().map_err(Error::system("memfd_create for the group's memory"))?;
    let scope = Scope::from(arguments.group.memory_scope.unwrap_or_default());
    let group = wire::new_name().map_err(Error::system("getrandom"))?;
    let named = wire::listen_as(&group).map_err(Error::system("making the group's socket"))?;
    let recording = match &arguments.trace {
        None => None,
        Some(path) => Some(
            Recording::create(path.clone())
                .map_err(|source| Error::TraceFile { path: path.clone(), source })?,
        ),
    };
    let warnings =
        [device_warnings::turns(&arguments.group.swap), device_warnings::ram(&arguments.group.swap, scope)];
    warnings.into_iter().flatten().chain(devices.note()).for_each(|line| eprint!("{line}"));
    let folio_orders = arguments
        .group
        .thp
        .as_ref()
        .map_or(FolioOrders::ALL, |option| option.orders(|| host::setting(folio_option::INHERITED)));
    let (agent, agent_name, beside_agent) =
        agent.map_or((None, None, None), |agent| (Some(agent.descriptor), agent.name, agent.socket));
    let injector = match agent.as_ref().filter(|_| may_inject) {
        None => None,
        Some(agent) => match Injector::of(agent, agent_name.clone(), group.clone()) {
            Ok(injector) => Some(Arc::new(injector)),
            // A developer's own agent may be for preloading alone.
            Err(_) if arguments.agent.is_some() => None,
            Err(source) => return Err(Error::System { doing: "reading the agent", source }),
        },
    };
    let listeners = iter::once(named).chain(beside_agent).collect();
    let settings = Settings {
        limit,
        reserve: if arguments.group.memory.is_some() { 0 } else { container_kills::reserve(limit) },
        scope,
        folio_orders,
        way,
        userfault_device,
        page_cluster: arguments.group.page_cluster(),
        when_thrashing: arguments.group.thrashing.unwrap_or_default().into(),
        description: Description::new(arguments.name.as_deref(), &arguments.command)
            .with_weight(arguments.weight.unwrap_or(WEIGHT_DEFAULT)),
        memory,
        devices,
        masked_devices: DeviceMask::ALL.minus(in_tiers),
        file_bytes: limits.file_bytes(),
        listeners,
        validate: arguments.validate,
        evict_all: arguments.evict_all,
        failures: arguments.fail.unwrap_or_default(),
        recording,
        outputs,
        started: Instant::now(),
    };
    let arguments = arguments.command.clone();
    let boarding = program.boarding;
    Ok((settings, Start { program: program.path, arguments, group, agent, agent_name, boarding, injector }))
}

/// Refuses to run inside a group: a group within a group would have two agents in one process.
fn refuse_nesting() -> Result<(), Error> {
    match env::var(GROUP_VARIABLE) {
        // The name of a group that has ended does no harm.
        Ok(group) if wire::connect_to(&group).is_ok() => Err(Error::Nested { group }),
        _ => Ok(()),
    }
}

/// Refuses a name that a running group has: `set NAME` must mean one.
fn refuse_taken(name: &str) -> Result<(), Error> {
    let all = groups::running(None)?;
    match all.iter().find(|group| group.description.name == name) {
        Some(group) => Err(Error::NameTaken { name: name.to_owned(), pid: group.supervisor() }),
        None => Ok(()),
    }
}

fn limit(arguments: &RunArguments, container: Option<&Limit>) -> Result<u64, Error> {
    let ram = host::memory_bytes();
    let warn =
        |given| container_kills::warning(given, container).into_iter().for_each(|line| eprint!("{line}"));
    match arguments.group.memory {
        Some(MemoryArgument::Bytes(given)) if given / LIMIT_PER_RAM_MAX > ram => {
            Err(Error::LimitTooLarge { given: size::show(given), ram: size::show(ram) })
        }
        Some(MemoryArgument::Bytes(given)) => {
            warn(given);
            Ok(given)
        }
        Some(MemoryArgument::Percent(percent)) => {
            let whole = memory::whole();
            let given = memory::part(whole, percent);
            if given < size::LIMIT_MIN {
                return Err(Error::PercentTooSmall {
                    percent,
                    of: size::show(whole),
                    found: size::show(given),
                });
            }
            warn(given);
            Ok(given)
        }
        None => match container {
            None => Err(Error::NoLimit),
            Some(limit) if limit.bytes < size::LIMIT_MIN => {
                Err(Error::CgroupLimitTooSmall { found: size::show(limit.bytes) })
            }
            Some(limit) => Ok(limit.bytes),
        },
    }
}
