//! What each way to use the engine finds here: `run`, `mount`, and the libraries. Each needs
//! something else.

use super::Examination;
use folioswap_supervisor::processes::userfault::Route;
use rustix::{
    fs::{Access, Mode, OFlags, access, open},
    io::Errno,
};
use serde::Serialize;
use std::{env, path::PathBuf};

/// What one way to use the engine finds here.
#[derive(Debug, Serialize)]
pub struct Door {
    /// Whether it works here.
    pub works: bool,
    /// What is missing, each with its remedy; empty when it works.
    pub problems: Vec<String>,
    /// What works with less than everything, each with the remedy.
    pub notes: Vec<String>,
}

impl Door {
    fn new(problems: Vec<String>, notes: Vec<String>) -> Self {
        Door { works: problems.is_empty(), problems, notes }
    }

    /// One line: whether it works, and the notes.
    pub fn summary(&self) -> String {
        match (self.works, self.notes.is_empty()) {
            (true, true) => "works here".to_owned(),
            (true, false) => format!("works here; {}", self.notes.join("; ")),
            (false, _) => "does not work here, see below".to_owned(),
        }
    }
}

/// What mounting takes besides a userfaultfd, which it does not need.
#[derive(Debug)]
pub struct Fuse {
    /// The outcome of opening `/dev/fuse`.
    pub device: Result<(), Errno>,
    /// The set-user-id program that mounts for those who are not root, if it is there.
    pub helper: Option<PathBuf>,
}

impl Fuse {
    /// Looks at the host.
    pub fn of_host() -> Self {
        let path = env::var_os("PATH").unwrap_or_default();
        let helper = env::split_paths(&path)
            .map(|directory| directory.join("fusermount3"))
            .find(|file| access(file, Access::EXEC_OK).is_ok());
        Fuse { device: open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map(|_| ()), helper }
    }
}

impl Examination {
    /// `folioswap run`.
    pub fn run_door(&self) -> Door {
        Door::new(self.findings.problems(), Vec::from_iter(self.without_file()))
    }

    /// `folioswap mount`: FUSE, and the right to mount.
    pub fn mount_door(&self) -> Door {
        let mut problems = Vec::from_iter(self.findings.other_page_size());
        match self.fuse.device {
            Ok(()) => {}
            Err(Errno::ACCESS | Errno::PERM) => problems.push(
                "/dev/fuse cannot be opened: mount as root, or let everybody open it (`chmod 666 /dev/fuse`); in a container \
                 `--device /dev/fuse`"
                    .to_owned(),
            ),
            Err(error) => problems.push(format!(
                "/dev/fuse: {}; `modprobe fuse`, or in a container `--device /dev/fuse`",
                std::io::Error::from(error)
            )),
        }
        if !self.findings.confinement.cap_sys_admin {
            match &self.fuse.helper {
                None => problems.push(
                    "mounting without CAP_SYS_ADMIN takes fusermount3: `apt-get install fuse3`, or mount as root; in a \
                     container `--cap-add SYS_ADMIN`"
                        .to_owned(),
                ),
                Some(helper) if self.findings.confinement.no_new_privileges => problems.push(format!(
                    "{} may not become root here (no-new-privileges): mount with CAP_SYS_ADMIN, or take that option \
                     away",
                    helper.display()
                )),
                Some(_) => {}
            }
        }
        Door::new(problems, Vec::from_iter(self.without_file()))
    }

    /// The libraries for Rust, C and Python: any userfaultfd will do, since they follow no fork.
    pub fn library_door(&self) -> Door {
        let mut notes = Vec::new();
        let mut problems = Vec::from_iter(self.findings.other_page_size());
        problems.extend(self.findings.missing_features());
        match self.findings.probe.route {
            Route::Syscall | Route::Device => {}
            Route::UserModeOnly => notes.push(
                if cfg!(target_arch = "x86_64") {
                    "system calls on memory that is swapped out are served where glibc makes them, by a gate, since \
                     userfaultfd is permitted for faults in user mode only; CAP_SYS_PTRACE or /dev/userfaultfd serves all"
                } else {
                    "system calls on memory that is swapped out fail (EFAULT) unless it is pinned before, since \
                     userfaultfd is permitted for faults in user mode only; CAP_SYS_PTRACE or /dev/userfaultfd mends it"
                }
                    .to_owned(),
            ),
            Route::None => problems.extend(self.findings.no_userfaultfd()),
        }
        if let Err(reason) = &self.file {
            notes.push(format!("it needs to be given its devices (compressed RAM alone): {reason}"));
        }
        Door::new(problems, notes)
    }

    /// What follows from a swap file that cannot be made.
    fn without_file(&self) -> Option<String> {
        let reason = self.file.as_ref().err()?;
        Some(format!("with compressed RAM alone, since there is no swap file: {reason} (--swap-dir DIR)"))
    }
}
