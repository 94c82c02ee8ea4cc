//! `folioswap doctor`: reports what this host allows, and how to mend what is missing.

mod advice;
mod doors;
mod ways;

use self::doors::Fuse;
use crate::{
    cgroup,
    cli::DoctorArguments,
    error::Error,
    host::{self, Confinement, Container},
    run::arguments::GateArgument,
};
use folioswap_devices::{check_page_size, create::CreateError};
use folioswap_group::{decisions::Way, devices::DeviceContents};
use folioswap_supervisor::{
    devices::{BUILT_IN_DIRECTORY, built_in_file},
    processes::userfault::{FEATURES, Probe, Route},
    size,
    swap_option::CONTENTS_DEFAULT,
};
use rustix::io::Errno;
use serde_json::{Map, Value, json};
use std::io::Write;

/// The first kernel with every feature of userfaultfd that is needed, what came last, and Debian's
/// package of a kernel.
const LEAST_KERNEL: &str = if cfg!(target_arch = "aarch64") { "6.10" } else { "6.8" };
const CAME_WITH: &str = if cfg!(target_arch = "aarch64") {
    "MOVE came with 6.8, write protection on arm64 with 6.10"
} else {
    "MOVE came with 6.8"
};
const KERNEL_PACKAGE: &str =
    if cfg!(target_arch = "aarch64") { "linux-image-arm64" } else { "linux-image-amd64" };

/// Why a program that cannot preload the agent is not managed, where the gate is unwanted.
const NEEDS_GATE: &str = "a program that is statically linked, or uses the C library musl, is managed by the system-call gate only: \
                          leave `--gate never` out";
/// Why the gate does not stand in for the fork event.
const NO_DISPATCH: &str = if cfg!(target_arch = "x86_64") {
    "the system-call gate, which follows forks without it, wants Syscall User Dispatch: Linux 5.11 or later, and no filter against it"
} else {
    "the system-call gate, which follows forks without it, is there for x86-64 only"
};

/// What lies on the disk unless the user says otherwise.
fn swap_file() -> &'static str {
    match CONTENTS_DEFAULT {
        DeviceContents::Plain => "plain",
        DeviceContents::Encrypted => "encrypted",
    }
}

/// The facts about this host.
pub struct Findings {
    release: String,
    probe: Probe,
    container: Container,
    confinement: Confinement,
    /// Bytes of the kernel's pages.
    page_bytes: usize,
}

/// The facts, and what they mean for each door.
struct Examination {
    findings: Findings,
    fuse: Fuse,
    /// The most bytes that the built-in swap file may take.
    file: Result<u64, CreateError>,
}

impl Findings {
    /// Looks at the host. It starts no process and changes nothing.
    pub fn new() -> Self {
        Findings {
            release: host::kernel_release(),
            probe: Probe::of_kernel(),
            container: host::container(),
            confinement: host::confinement(),
            page_bytes: rustix::param::page_size(),
        }
    }

    /// Whether `run` works here.
    pub fn works(&self) -> bool {
        self.way(GateArgument::Auto).is_some()
    }

    /// How `run` manages programs here, with the gate as asked for; `None`: it does not work.
    pub fn way(&self, gate: GateArgument) -> Option<Way> {
        gate.ways().iter().copied().find(|way| self.works_with(*way))
    }

    /// Whether the gate may stand before the calls of a program into which the agent is put.
    ///
    /// # Errors
    /// What forbids it.
    pub fn check_for_injection(&self, gate: GateArgument) -> Result<(), Error> {
        match &self.probe.dispatch {
            _ if gate == GateArgument::Never => Err(Error::Host(NEEDS_GATE.to_owned())),
            Err(_) => Err(Error::Host(NO_DISPATCH.to_owned())),
            Ok(()) => Ok(()),
        }
    }

    /// Whether `run` works here in this way.
    fn works_with(&self, way: Way) -> bool {
        self.probe.works_with(way) && self.programs_may_too(way) && self.other_page_size().is_none()
    }

    /// Whether the programs that this process starts may do what it may itself.
    fn programs_may_too(&self, way: Way) -> bool {
        let Confinement { cap_sys_ptrace, programs_have_sys_ptrace, .. } = self.confinement;
        match way {
            Way::Kernel => programs_have_sys_ptrace,
            // What was asked with the capability says nothing of what is allowed without it.
            // Nor can programs reach the agent that a command with file capabilities has open.
            Way::GatedForks | Way::GatedCalls => programs_have_sys_ptrace || !cap_sys_ptrace,
        }
    }

    /// The problems, each with its remedy; empty when `run` works.
    pub fn problems(&self) -> Vec<String> {
        if self.works() { Vec::new() } else { self.problems_with(GateArgument::Auto) }
    }

    /// The problems with the gate as asked for, each with its remedy.
    fn problems_with(&self, gate: GateArgument) -> Vec<String> {
        let mut problems = Vec::from_iter(self.other_page_size());
        problems.extend(self.no_userfaultfd());
        problems.extend(self.missing_features());
        let has_userfault = match gate {
            GateArgument::Never => self.probe.route.serves_calls(),
            _ => self.probe.user_mode.is_ok(),
        };
        if !has_userfault {
            problems.push(format!(
                "userfaultfd for faults taken inside system calls is not permitted here; without it read(2) into \
                 evicted memory would fail.\n    {}",
                self.permission_advice()
            ));
        } else if gate.is_wanted() && self.probe.dispatch.is_err() {
            problems.push(NO_DISPATCH.to_owned());
        } else if !gate.is_wanted() && self.probe.fork_event == Err(Errno::PERM) {
            let why = match gate {
                GateArgument::Never => "--gate never forbids the other way to follow forks",
                _ => NO_DISPATCH,
            };
            problems.push(format!(
                "userfaultfd's fork event is not permitted: it needs CAP_SYS_PTRACE (of the machine, not of a user \
                 namespace); without it a forked child would read zeroes where its parent was swapped out. And {why}.\n    {}",
                self.permission_advice()
            ));
        }
        let asked = gate.ways()[0];
        if self.probe.works_with(asked) && !self.programs_may_too(asked) {
            problems.push(format!(
                "folioswap has CAP_SYS_PTRACE (file capabilities of the command), and a program that it starts would not: it could \
                 not be managed. Take them away (`setcap -r`).\n    {}",
                self.permission_advice()
            ));
        }
        problems
    }

    /// The problem of a kernel with pages of another size, which no door can do without.
    fn other_page_size(&self) -> Option<String> {
        check_page_size(self.page_bytes).err().map(|other| other.to_string())
    }

    /// The problem of a kernel without userfaultfd, or of a filter that hides it.
    fn no_userfaultfd(&self) -> Option<String> {
        let is_hidden = self.probe.route == Route::None && self.probe.syscall == Err(Errno::NOSYS);
        is_hidden.then(|| {
            format!(
                "the kernel has no userfaultfd (or seccomp hides it): use a kernel with CONFIG_USERFAULTFD=y, \
                 {LEAST_KERNEL} or later"
            )
        })
    }

    /// The problem of a kernel whose userfaultfd is too old.
    fn missing_features(&self) -> Option<String> {
        let missing = self.probe.missing();
        if self.probe.features == 0 || missing.is_empty() {
            return None;
        }
        let newer = match self.release.contains("deb12") || self.release.starts_with("6.1.") {
            true => format!("on Debian 12: `apt install -t bookworm-backports {KERNEL_PACKAGE}` and reboot"),
            false => format!("install a kernel {LEAST_KERNEL} or later and reboot"),
        };
        Some(format!(
            "Linux {} lacks these features of userfaultfd: {} ({CAME_WITH}): {newer}",
            self.release,
            missing.join(", ")
        ))
    }

    /// The problems as the text of a refusal.
    pub fn refusal(&self) -> String {
        self.refusal_with(GateArgument::Auto)
    }

    /// The same with the gate as asked for.
    pub fn refusal_with(&self, gate: GateArgument) -> String {
        let problems = self.problems_with(gate);
        problems.iter().map(|problem| format!("  - {problem}")).collect::<Vec<_>>().join("\n")
    }
}

impl Examination {
    /// Looks at the host. A swap file without a name is made, and is gone again; nothing else is
    /// changed.
    fn new() -> Self {
        Examination { findings: Findings::new(), fuse: Fuse::of_host(), file: built_in_file() }
    }

    fn json(&self) -> Value {
        let findings = &self.findings;
        let features: Map<String, Value> = FEATURES
            .iter()
            .map(|(name, bit)| ((*name).to_owned(), json!(findings.probe.features >> bit & 1 == 1)))
            .collect();
        let limit = cgroup::memory_limit();
        json!({
            "works": findings.works(),
            "problems": findings.problems(),
            "doors": { "run": self.run_door(), "mount": self.mount_door(), "library": self.library_door() },
            "way": findings.way(GateArgument::Auto).map(Way::name),
            "ways": findings.ways(),
            "kernel": findings.release,
            "userfaultfd": {
                "route": findings.probe.route,
                "syscall": outcome(&findings.probe.syscall),
                "device": outcome(&findings.probe.device),
                "user_mode_only": outcome(&findings.probe.user_mode),
                "fork_event": outcome(&findings.probe.fork_event),
                "unprivileged_userfaultfd": host::setting("/proc/sys/vm/unprivileged_userfaultfd"),
                "features": features,
                "missing_features": findings.probe.missing(),
            },
            "memory": {
                "ram_bytes": host::memory_bytes(),
                "cgroup_limit_bytes": limit.as_ref().map(|limit| limit.bytes),
                "cgroup_limit_source": limit.as_ref().map(|limit| limit.source.display().to_string()),
            },
            "thp": {
                "enabled": thp("enabled"),
                "defrag": thp("defrag"),
                "hugepages_64kB": thp("hugepages-64kB/enabled"),
            },
            "max_map_count": host::setting("/proc/sys/vm/max_map_count").and_then(|text| text.parse::<u64>().ok()),
            "swap_file": {
                "directory": BUILT_IN_DIRECTORY,
                "contents": swap_file(),
                "max_bytes": self.file.as_ref().ok(),
                "missing": self.file.as_ref().err().map(ToString::to_string),
            },
            "fuse": { "device": outcome(&self.fuse.device), "fusermount3": self.fuse.helper },
            "c_library": host::c_library(),
            "container": findings.container,
            "confinement": findings.confinement,
        })
    }

    fn text(&self) -> String {
        let findings = &self.findings;
        let mut lines = Vec::new();
        let mut row = |name: &str, value: String| lines.push(format!("{name:<28}{value}"));
        row("kernel", findings.release.clone());
        row("userfaultfd, system call", outcome(&findings.probe.syscall));
        row("userfaultfd, device", outcome(&findings.probe.device));
        row("userfaultfd, user mode only", outcome(&findings.probe.user_mode));
        row("userfaultfd, fork event", outcome(&findings.probe.fork_event));
        let sysctl = host::setting("/proc/sys/vm/unprivileged_userfaultfd");
        row("vm.unprivileged_userfaultfd", sysctl.unwrap_or_else(|| "absent".to_owned()));
        let present =
            FEATURES.iter().filter(|(_, bit)| findings.probe.features >> bit & 1 == 1).map(|(name, _)| *name);
        row("features", present.collect::<Vec<_>>().join(" "));
        row("memory", size::show(host::memory_bytes()));
        row(
            "limit of our cgroup",
            match cgroup::memory_limit() {
                Some(limit) => format!("{} ({})", size::show(limit.bytes), limit.source.display()),
                None => "none: `run` needs --memory".to_owned(),
            },
        );
        let thp = |name| thp(name).unwrap_or_else(|| "absent".to_owned());
        row(
            "transparent huge pages",
            format!("{} (defrag {}, 64kB {})", thp("enabled"), thp("defrag"), thp("hugepages-64kB/enabled")),
        );
        row("vm.max_map_count", host::setting("/proc/sys/vm/max_map_count").unwrap_or_default());
        row(
            "swap file",
            match &self.file {
                Ok(most) => format!("{BUILT_IN_DIRECTORY}, {}, at most {}", swap_file(), size::show(*most)),
                Err(reason) => format!("none: {reason}"),
            },
        );
        row("fuse", outcome(&self.fuse.device));
        row("C library", host::c_library());
        row("container", format!("{:?}", findings.container).to_lowercase());
        let yes = |fact| if fact { "yes" } else { "no" };
        row("seccomp filter", yes(findings.confinement.seccomp_filter).to_owned());
        row("CAP_SYS_PTRACE", yes(findings.confinement.cap_sys_ptrace).to_owned());
        row("user namespace", yes(findings.confinement.user_namespace).to_owned());
        lines.push(String::new());
        let doors =
            [("run", self.run_door()), ("mount", self.mount_door()), ("the libraries", self.library_door())];
        for report in findings.ways() {
            let found = report.lacks.map_or_else(|| "works".to_owned(), |lacks| format!("lacks {lacks}"));
            lines.push(format!("{:<28}{found}", format!("way {}", report.way)));
        }
        lines.push(String::new());
        if let Some(way) = findings.way(GateArgument::Auto) {
            lines.push(format!("`folioswap run` works here, and takes the way {}.", way.name()));
            if CONTENTS_DEFAULT == DeviceContents::Plain && self.file.is_ok() {
                lines.push(format!(
                    "Swapped memory lies on the disk as it is, where root and whoever has the disk can read it: `--swap zram,prio=1 --swap \
                     file:{BUILT_IN_DIRECTORY},prio=0,encrypt=yes` encrypts it."
                ));
            }
        }
        for (name, door) in &doors {
            lines.push(format!("{name:<28}{}", door.summary()));
        }
        for (name, door) in doors.iter().filter(|(_, door)| !door.works) {
            let name =
                if *name == "the libraries" { (*name).to_owned() } else { format!("`folioswap {name}`") };
            lines.push(String::new());
            lines.push(format!("What {name} lacks here:"));
            lines.extend(door.problems.iter().map(|problem| format!("  - {problem}")));
        }
        lines.join("\n")
    }
}

fn thp(name: &str) -> Option<String> {
    let text = host::setting(&format!("/sys/kernel/mm/transparent_hugepage/{name}"))?;
    Some(folioswap_peer::chosen(&text).unwrap_or(&text).to_owned())
}

fn outcome(result: &Result<(), Errno>) -> String {
    match result {
        Ok(()) => "permitted".to_owned(),
        Err(Errno::NOENT) => "absent".to_owned(),
        Err(error) => format!("refused ({})", std::io::Error::from(*error)),
    }
}

/// The command. Its exit status is 0 when `run` works here, 1 when it does not.
///
/// # Errors
/// When the output cannot be written.
pub fn doctor(arguments: &DoctorArguments) -> Result<i32, Error> {
    let examination = Examination::new();
    let text = if arguments.json { format!("{:#}", examination.json()) } else { examination.text() };
    writeln!(std::io::stdout(), "{text}").map_err(Error::Output)?;
    Ok(i32::from(!examination.findings.works()))
}

#[cfg(test)]
mod tests;
