//! Facts about the machine and the container that we are in.

pub use folioswap_supervisor::machine::memory_bytes;

use serde::Serialize;
use std::{fs, path::Path};

/// Release of the running kernel.
pub fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// What isolates us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Container {
    /// Nothing that we recognise.
    None,
    /// Docker.
    Docker,
    /// Podman.
    Podman,
    /// A Kubernetes pod.
    Kubernetes,
    /// Another one (LXC, systemd-nspawn, ...).
    Other,
}

/// Recognises the container.
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

/// By the names of our cgroups, the files that container engines leave, and the variables that they set.
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

/// Is this link of `/proc/self/ns/pid` another one than the machine's own (whose number is PROC_PID_INIT_INO of the kernel's)? Then somebody
/// isolates us, though nothing says who: a container runtime without an engine around it.
fn is_other_namespace(link: &Path) -> bool {
    let text = link.to_string_lossy();
    text.starts_with("pid:[") && text != "pid:[4026531836]"
}

/// What `/proc/self/status` says about our confinement.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Confinement {
    /// A seccomp filter is active.
    pub seccomp_filter: bool,
    /// CAP_SYS_PTRACE is effective.
    pub cap_sys_ptrace: bool,
    /// It could be: root has it here.
    pub root_has_sys_ptrace: bool,
    /// We are in a user namespace of our own (a rootless container).
    pub user_namespace: bool,
}

/// Reads it.
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
        root_has_sys_ptrace: sys_ptrace("CapBnd"),
        user_namespace: identity.split_whitespace().collect::<Vec<_>>() != ["0", "0", "4294967295"],
    }
}

/// A setting under `/sys` or `/proc/sys`, trimmed.
pub fn setting(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_recognised() {
        let by =
            |cgroups, file, variable| container_by(cgroups, |path| path == file, |name| name == variable);
        assert_eq!(by("0::/user.slice/session-1.scope", "", ""), Container::None);
        assert_eq!(by("0::/", "/.dockerenv", ""), Container::Docker);
        assert_eq!(by("4:memory:/docker/0123456789ab", "", ""), Container::Docker);
        assert_eq!(by("0::/", "/run/.containerenv", "container"), Container::Podman);
        assert_eq!(by("0::/machine.slice/libpod-0123.scope", "", ""), Container::Podman);
        assert_eq!(by("0::/", "/.dockerenv", "KUBERNETES_SERVICE_HOST"), Container::Kubernetes);
        assert_eq!(by("0::/kubepods/besteffort/pod0123", "", ""), Container::Kubernetes);
        assert_eq!(by("0::/lxc/name", "", ""), Container::Other);
        assert_eq!(by("0::/", "", "container"), Container::Other);
    }

    #[test]
    fn a_namespace_of_processes_is_a_container() {
        assert!(!is_other_namespace(Path::new("pid:[4026531836]")));
        assert!(is_other_namespace(Path::new("pid:[4026532201]")));
        assert!(!is_other_namespace(Path::new("")), "nothing is known without /proc");
    }

    #[test]
    fn choices_are_read() {
        assert_eq!(folioswap_peer::chosen("always [madvise] never"), Some("madvise"));
        assert!(memory_bytes() > 1 << 28);
    }
}
