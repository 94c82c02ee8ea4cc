//! The option, command or rule that gives the permission that is missing now.

use super::Findings;
use crate::host::{Confinement, Container};
use rustix::io::Errno;

/// Where the seccomp profile is that permits one system call more than those of the engines.
const PROFILE: &str = "/usr/share/folioswap/seccomp.json";

impl Findings {
    /// The option, command or rule that gives the missing permission, and nothing that is there
    /// already.
    pub(super) fn permission_advice(&self) -> String {
        if self.confinement.user_namespace {
            return "this is a user namespace (rootless container): its capabilities do not count for userfaultfd. \
                    Run the container as root of the machine (`sudo podman run --cap-add SYS_PTRACE --device \
                    /dev/userfaultfd ...`), or folioswap outside of it"
                .to_owned();
        }
        let Confinement { cap_sys_ptrace, root_has_sys_ptrace, .. } = self.confinement;
        if self.container != Container::None && root_has_sys_ptrace && !cap_sys_ptrace {
            // No engine but Podman gives a capability to a user who is not root.
            return format!(
                "the container has CAP_SYS_PTRACE, but its user does not: run it as root (`--user 0`; Kubernetes: `runAsUser: 0`), \
                 with folioswap's seccomp profile\n    (`--security-opt seccomp={PROFILE}`), and become that user with `setpriv --reuid ID \
                 --regid ID --clear-groups --inh-caps +sys_ptrace\n    --ambient-caps +sys_ptrace folioswap run ...`"
            );
        }
        let engine = match self.container {
            Container::Docker => "docker run",
            Container::Podman => "sudo podman run",
            Container::Kubernetes => return self.advice_for_a_pod(),
            Container::Other | Container::None if self.gate_would_do() => {
                return "let it have a userfaultfd: `sudo sysctl vm.unprivileged_userfaultfd=1` for everybody, or the udev rule of the \
                        package for its group\n    (`sudo usermod -aG folioswap $(id -un)`), or `sudo setfacl -m u:$(id -un):rw \
                        /dev/userfaultfd` until the next boot.\n    Or run it with CAP_SYS_PTRACE, as root has it: then no gate is needed."
                    .to_owned();
            }
            Container::Other | Container::None => {
                return "give it CAP_SYS_PTRACE: run folioswap as root, or as yourself with\n    \
                 `sudo setpriv --reuid $(id -u) --regid $(id -g) --init-groups --inh-caps +sys_ptrace --ambient-caps \
                 +sys_ptrace folioswap run ...`\n    (in a systemd unit: `AmbientCapabilities=CAP_SYS_PTRACE`). A udev rule that opens /dev/userfaultfd, or \
                 vm.unprivileged_userfaultfd=1, is not enough: forks need the capability all the same."
                    .to_owned();
            }
        };
        let capability = if cap_sys_ptrace || self.gate_would_do() { "" } else { " --cap-add SYS_PTRACE" };
        if self.probe.route.serves_calls() {
            return format!("start the container with `{engine}{capability} ...`");
        }
        // A device that is there and cannot be opened is not for this user: the profile opens the
        // other way.
        if cap_sys_ptrace && self.probe.device == Err(Errno::ACCESS) {
            return format!(
                "start the container with `{engine} --security-opt seccomp={PROFILE} ...`: this user may not open \
                 /dev/userfaultfd"
            );
        }
        format!(
            "start the container with `{engine}{capability} --device /dev/userfaultfd ...` \
             (or `{engine}{capability} --security-opt seccomp={PROFILE} ...`, for users who are not root too)"
        )
    }

    /// Whether any userfaultfd would do, because the gate can follow forks.
    fn gate_would_do(&self) -> bool {
        self.probe.dispatch.is_ok() && !self.confinement.cap_sys_ptrace
    }

    fn advice_for_a_pod(&self) -> String {
        let mut missing = Vec::new();
        if !self.confinement.cap_sys_ptrace {
            missing.push("`capabilities: {add: [\"SYS_PTRACE\"]}`");
        }
        if !self.probe.route.serves_calls() {
            missing.push(
                "`seccompProfile: {type: Localhost, localhostProfile: folioswap.json}` (folioswap's seccomp profile, laid on each node; \
                 or a device plugin that hands out /dev/userfaultfd)",
            );
        }
        format!("in the container's securityContext: {}", missing.join(" and "))
    }
}
