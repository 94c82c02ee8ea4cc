//! `folioswap doctor`: reports what this host allows, and how to mend what is missing.

use crate::{
    cgroup,
    cli::DoctorArguments,
    error::Error,
    host::{self, Confinement, Container},
};
use folioswap_group::devices::DeviceContents;
use folioswap_supervisor::{
    devices::BUILT_IN_DIRECTORY,
    processes::userfault::{FEATURES, Probe, Route},
    size,
    swap_option::CONTENTS_DEFAULT,
};
use rustix::io::Errno;
use serde_json::{Map, Value, json};
use std::io::Write;

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
}

impl Findings {
    /// Looks at the host. It starts no process and changes nothing.
    pub fn new() -> Self {
        Findings {
            release: host::kernel_release(),
            probe: Probe::of_kernel(),
            container: host::container(),
            confinement: host::confinement(),
        }
    }

    /// Whether `run` works here.
    pub fn works(&self) -> bool {
        self.probe.works() && self.confinement.programs_have_sys_ptrace
    }

    /// The problems, each with its remedy; empty when `run` works.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.probe.route == Route::None && self.probe.syscall == Err(Errno::NOSYS) {
            problems.push(
                "the kernel has no userfaultfd (or seccomp hides it): use a kernel with CONFIG_USERFAULTFD=y, 6.8 or later"
                    .to_owned(),
            );
        }
        let missing = self.probe.missing();
        if self.probe.features != 0 && !missing.is_empty() {
            let newer = match self.release.contains("deb12") || self.release.starts_with("6.1.") {
                true => "on Debian 12: `apt install -t bookworm-backports linux-image-amd64` and reboot",
                false => "install a kernel 6.8 or later and reboot",
            };
            problems.push(format!(
                "Linux {} lacks these features of userfaultfd: {} (MOVE came with 6.8): {newer}",
                self.release,
                missing.join(", ")
            ));
        }
        if !matches!(self.probe.route, Route::Syscall | Route::Device) {
            problems.push(format!(
                "userfaultfd for faults taken inside system calls is not permitted here; without it read(2) into \
                 evicted memory would fail.\n    {}",
                self.permission_advice()
            ));
        } else if self.probe.fork_event == Err(Errno::PERM) {
            problems.push(format!(
                "userfaultfd's fork event is not permitted: it needs CAP_SYS_PTRACE (of the machine, not of a user \
                 namespace); without it a forked child would read zeroes where its parent was swapped out.\n    {}",
                self.permission_advice()
            ));
        }
        if self.probe.works() && !self.confinement.programs_have_sys_ptrace {
            problems.push(format!(
                "folioswap has CAP_SYS_PTRACE (file capabilities of the command), and a program that it starts would not: it could \
                 not be managed. Take them away (`setcap -r`).\n    {}",
                self.permission_advice()
            ));
        }
        problems
    }

    /// The option, command or rule that gives the missing permission.
    fn permission_advice(&self) -> String {
        if self.confinement.user_namespace {
            return "this is a user namespace (rootless container): its capabilities do not count for userfaultfd. \
                    Run the container as root of the machine (`sudo podman run --cap-add SYS_PTRACE --device \
                    /dev/userfaultfd ...`), or folioswap outside of it"
                .to_owned();
        }
        let Confinement { cap_sys_ptrace, root_has_sys_ptrace, .. } = self.confinement;
        if self.container != Container::None && root_has_sys_ptrace && !cap_sys_ptrace {
            // No engine gives a capability to a user who is not root.
            return "the container has CAP_SYS_PTRACE, but its user does not: run it as root (`--user 0`; Kubernetes: `runAsUser: 0`), \
                    without its seccomp filter\n    (`--security-opt seccomp=unconfined`), and become that user with `setpriv --reuid ID \
                    --regid ID --clear-groups --inh-caps +sys_ptrace\n    --ambient-caps +sys_ptrace folioswap run ...`"
                .to_owned();
        }
        match self.container {
            Container::Docker => "start the container with `docker run --cap-add SYS_PTRACE --device /dev/userfaultfd ...` \
                                  (or `--cap-add SYS_PTRACE --security-opt seccomp=unconfined`)"
                .to_owned(),
            Container::Podman => "start the container with `sudo podman run --cap-add SYS_PTRACE --device /dev/userfaultfd ...` \
                                  (or `--cap-add SYS_PTRACE --security-opt seccomp=unconfined`)"
                .to_owned(),
            Container::Kubernetes => "in the container's securityContext: `capabilities: {add: [\"SYS_PTRACE\"]}` and \
                                      `seccompProfile: {type: Unconfined}` (a device plugin that hands out \
                                      /dev/userfaultfd makes the latter unnecessary)"
                .to_owned(),
            Container::Other | Container::None => "give it CAP_SYS_PTRACE: run folioswap as root, or as yourself with\n    \
                 `sudo setpriv --reuid $(id -u) --regid $(id -g) --init-groups --inh-caps +sys_ptrace --ambient-caps \
                 +sys_ptrace folioswap run ...`\n    (in a systemd unit: `AmbientCapabilities=CAP_SYS_PTRACE`). A udev rule that opens /dev/userfaultfd, or \
                 vm.unprivileged_userfaultfd=1, is not enough: forks need the capability all the same."
                .to_owned(),
        }
    }

    /// The problems as the text of a refusal.
    pub fn refusal(&self) -> String {
        self.problems().iter().map(|problem| format!("  - {problem}")).collect::<Vec<_>>().join("\n")
    }

    fn json(&self) -> Value {
        let features: Map<String, Value> = FEATURES
            .iter()
            .map(|(name, bit)| ((*name).to_owned(), json!(self.probe.features >> bit & 1 == 1)))
            .collect();
        let limit = cgroup::memory_limit();
        json!({
            "works": self.works(),
            "problems": self.problems(),
            "kernel": self.release,
            "userfaultfd": {
                "route": self.probe.route,
                "syscall": outcome(&self.probe.syscall),
                "device": outcome(&self.probe.device),
                "user_mode_only": outcome(&self.probe.user_mode),
                "fork_event": outcome(&self.probe.fork_event),
                "unprivileged_userfaultfd": host::setting("/proc/sys/vm/unprivileged_userfaultfd"),
                "features": features,
                "missing_features": self.probe.missing(),
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
            "swap_file": { "directory": BUILT_IN_DIRECTORY, "contents": swap_file() },
            "container": self.container,
            "confinement": self.confinement,
        })
    }

    fn text(&self) -> String {
        let mut lines = Vec::new();
        let mut row = |name: &str, value: String| lines.push(format!("{name:<28}{value}"));
        row("kernel", self.release.clone());
        row("userfaultfd, system call", outcome(&self.probe.syscall));
        row("userfaultfd, device", outcome(&self.probe.device));
        row("userfaultfd, user mode only", outcome(&self.probe.user_mode));
        row("userfaultfd, fork event", outcome(&self.probe.fork_event));
        let sysctl = host::setting("/proc/sys/vm/unprivileged_userfaultfd");
        row("vm.unprivileged_userfaultfd", sysctl.unwrap_or_else(|| "absent".to_owned()));
        let present =
            FEATURES.iter().filter(|(_, bit)| self.probe.features >> bit & 1 == 1).map(|(name, _)| *name);
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
        row("swap file", format!("{BUILT_IN_DIRECTORY}, {}", swap_file()));
        row("container", format!("{:?}", self.container).to_lowercase());
        let yes = |fact| if fact { "yes" } else { "no" };
        row("seccomp filter", yes(self.confinement.seccomp_filter).to_owned());
        row("CAP_SYS_PTRACE", yes(self.confinement.cap_sys_ptrace).to_owned());
        row("user namespace", yes(self.confinement.user_namespace).to_owned());
        lines.push(String::new());
        if self.works() {
            lines.push("`folioswap run` works here.".to_owned());
            if CONTENTS_DEFAULT == DeviceContents::Plain {
                lines.push(format!(
                    "Swapped memory lies on the disk as it is, where root and whoever has the disk can read it: `--swap zram,prio=1 --swap \
                     file:{BUILT_IN_DIRECTORY},prio=0,encrypt=yes` encrypts it."
                ));
            }
        } else {
            lines.push("`folioswap run` does not work here:".to_owned());
            lines.push(self.refusal());
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
    let findings = Findings::new();
    let text = if arguments.json { format!("{:#}", findings.json()) } else { findings.text() };
    writeln!(std::io::stdout(), "{text}").map_err(Error::Output)?;
    Ok(i32::from(!findings.works()))
}

#[cfg(test)]
mod tests;
