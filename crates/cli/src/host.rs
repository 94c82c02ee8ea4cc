//! Facts about the machine and the container of this process.

pub use folioswap_supervisor::machine::memory_bytes;

use serde::Serialize;
use std::{fs, path::Path};

/// The release of the running kernel.
pub fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// The kind of container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Container {
    /// No container that is recognised.
    None,
    /// A Docker container.
    Docker,
    /// A Podman container.
    Podman,
    /// A Kubernetes pod.
    Kubernetes,
    /// Another container (LXC, systemd-nspawn, ...).
    Other,
}

/// Recognises the container of this process.
pub fn container() -> Container {
    let cgroups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let marked =
        container_by(&cgroups, |path| Path::new(path).exists(), |name| std::env::var_os(name).is_some());
    let names_processes = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    match marked {
        Container::None if is_other_namespace(&names_processes) => Container::Other,
        marked => marked,
    }
}

/// Recognises the container by the names of our cgroups, the files that container engines leave,
/// and the environment variables that they set.
fn container_by(cgroups: &str, exists: impl Fn(&str) -> bool, is_set: impl Fn(&str) -> bool) -> Container {
    if is_set("KUBERNETES_SERVICE_HOST") || cgroups.contains("kubepods") {
        Container::Kubernetes
    } else if exists("/run/.containerenv") || cgroups.contains("libpod") {
        Container::Podman
    } else if exists("/.dockerenv") || cgroups.contains("docker") {
        Container::Docker
    } else if cgroups.contains("lxc") || is_set("container") {
        Container::Other
    } else {
        Container::None
    }
}

/// Does this link of `/proc/self/ns/pid` name another namespace than the machine's own, whose
/// number is the kernel's PROC_PID_INIT_INO? Then we are isolated, though nothing says by which
/// engine: by a container runtime without an engine around it.
fn is_other_namespace(link: &Path) -> bool {
    let text = link.to_string_lossy();
    text.starts_with("pid:[") && text != "pid:[4026531836]"
}

/// The confinement of this process according to `/proc/self/status`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Confinement {
    /// A seccomp filter is active.
    pub seccomp_filter: bool,
    /// CAP_SYS_PTRACE is effective.
    pub cap_sys_ptrace: bool,
    /// Programs that it starts have CAP_SYS_PTRACE as well.
    pub programs_have_sys_ptrace: bool,
    /// CAP_SYS_PTRACE is in the bounding set, so root has it here.
    pub root_has_sys_ptrace: bool,
    /// The process is in a user namespace of its own (a rootless container).
    pub user_namespace: bool,
}

/// Reads the confinement of this process.
pub fn confinement() -> Confinement {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(str::trim)
            .unwrap_or_default()
    };
    let sys_ptrace = |set| u64::from_str_radix(field(set), 16).unwrap_or(0) & (1 << 19) != 0;
    let identity = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    Confinement {
        seccomp_filter: field("Seccomp") == "2",
        cap_sys_ptrace: sys_ptrace("CapEff"),
        programs_have_sys_ptrace: sys_ptrace("CapAmb") || exec_gives(field("Uid"), sys_ptrace("CapBnd")),
        root_has_sys_ptrace: sys_ptrace("CapBnd"),
        user_namespace: identity.split_whitespace().collect::<Vec<_>>() != ["0", "0", "4294967295"],
    }
}

/// Whether exec gives a capability that may be had at all: to root, unless that was switched off.
/// `users` are the user ids as `/proc` states them.
fn exec_gives(users: &str, may_be_had: bool) -> bool {
    const NO_ROOT: libc::c_int = 1;
    // SAFETY: reads a setting of this thread.
    let bits = unsafe { libc::prctl(libc::PR_GET_SECUREBITS) };
    let is_root = users.split_whitespace().take(2).any(|user| user == "0");
    may_be_had && is_root && bits & NO_ROOT == 0
}

/// Reads a setting below `/sys` or `/proc/sys`, trimmed; `None` when it is absent.
pub fn setting(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests;
