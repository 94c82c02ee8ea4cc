//! The three ways in which `run` manages programs: whether each works here, and if not, why.

use super::{Findings, NO_DISPATCH};
use folioswap_group::decisions::{Forks, Way};
use serde::Serialize;

/// What one way finds here.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Its name, as in statistics.
    pub way: &'static str,
    /// Whether it works here.
    pub works: bool,
    /// What it lacks, and what gives it; none where it works.
    pub lacks: Option<String>,
}

impl Findings {
    /// All ways, the cheapest first.
    pub fn ways(&self) -> Vec<Report> {
        let report = |way: Way| {
            let works = self.works_with(way);
            Report { way: way.name(), works, lacks: (!works).then(|| self.lacks(way)) }
        };
        Way::ALL.into_iter().map(report).collect()
    }

    /// What a way that does not work lacks, and what gives it.
    fn lacks(&self, way: Way) -> String {
        let probe = &self.probe;
        if let Some(other) = self.other_page_size() {
            return other;
        }
        if probe.features != 0 && !probe.missing().is_empty() {
            return format!("features of userfaultfd ({}): a newer kernel", probe.missing().join(", "));
        }
        let has_any = probe.route.serves_calls();
        match way {
            Way::GatedCalls if probe.user_mode.is_err() => {
                "any userfaultfd: a kernel that has it, or a seccomp profile that permits it".to_owned()
            }
            Way::Kernel | Way::GatedForks if !has_any => {
                "a userfaultfd that serves faults of system calls: CAP_SYS_PTRACE, the device /dev/userfaultfd, or \
                 vm.unprivileged_userfaultfd=1"
                    .to_owned()
            }
            _ if way.forks() == Forks::Gated && probe.dispatch.is_err() => NO_DISPATCH.to_owned(),
            Way::Kernel if probe.fork_event.is_err() => {
                "the report of forks: CAP_SYS_PTRACE on the machine".to_owned()
            }
            _ => "the permission for programs that folioswap starts: no file capabilities of the command (`setcap -r`)"
                .to_owned(),
        }
    }
}
