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
    let is_isolated = NAMESPACES.iter().any(|(name, number)| {
        is_other_namespace(&fs::read_link(format!("/proc/self/ns/{name}")).unwrap_or_default(), name, *number)
    });
    // A virtual machine that was made from an image of a container keeps the file that the engine
    // had left there.
    let exists = |path: &str| is_isolated && Path::new(path).exists();
    match container_by(&cgroups, exists, |name| std::env::var_os(name).is_some()) {
        Container::None if is_isolated => Container::Other,
        marked => marked,
    }
}

/// The namespaces of which every container has at least one of its own, whatever its options are,
/// with the numbers that those of the machine have (the kernel's PROC_PID_INIT_INO and so on).
const NAMESPACES: [(&str, u64); 3] = [("pid", 4_026_531_836), ("ipc", 4_026_531_839), ("uts", 4_026_531_838)];

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

/// Does this link of `/proc/self/ns` name another namespace than the machine's own, whose number is
/// given? Then we are isolated, though nothing may say by which engine: a container runtime may
/// have no engine around it.
fn is_other_namespace(link: &Path, name: &str, number: u64) -> bool {
    let text = link.to_string_lossy();
    text.starts_with(&format!("{name}:[")) && text != format!("{name}:[{number}]")
}

const CAP_SYS_PTRACE: u32 = 19;
const CAP_SYS_ADMIN: u32 = 21;

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
    /// CAP_SYS_ADMIN is effective, which mount(2) asks for.
    pub cap_sys_admin: bool,
    /// No program that it starts gets more rights (set-user-id), such as fusermount3.
    pub no_new_privileges: bool,
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
    let has = |set, capability: u32| u64::from_str_radix(field(set), 16).unwrap_or(0) >> capability & 1 == 1;
    let sys_ptrace = |set| has(set, CAP_SYS_PTRACE);
    let identity = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    Confinement {
        seccomp_filter: field("Seccomp") == "2",
        cap_sys_ptrace: sys_ptrace("CapEff"),
        programs_have_sys_ptrace: sys_ptrace("CapAmb") || exec_gives(field("Uid"), sys_ptrace("CapBnd")),
        root_has_sys_ptrace: sys_ptrace("CapBnd"),
        user_namespace: identity.split_whitespace().collect::<Vec<_>>() != ["0", "0", "4294967295"],
        cap_sys_admin: has("CapEff", CAP_SYS_ADMIN),
        no_new_privileges: field("NoNewPrivs") == "1",
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

/// The C library that this process has, which is that of dynamically linked programs here.
pub fn c_library() -> String {
    // SAFETY: returns a constant text, which ends with a zero byte.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    format!("glibc {}", version.to_string_lossy())
}

/// Reads a setting below `/sys` or `/proc/sys`, trimmed; `None` when it is absent.
pub fn setting(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests;
