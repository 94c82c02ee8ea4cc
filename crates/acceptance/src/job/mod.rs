//! Runs a program without a limit, under folioswap, or under the kernel's own swap, and reports the
//! outcome.

mod engine;
mod judge;
mod outcome;
mod rights;
mod running;
mod watch;

pub use engine::{Engine, amount, engine, judging_folioswap};
pub use judge::{check_out_of_memory, check_swapped, check_way, report, same_at_parts_of_need};
pub use outcome::{Outcome, said};
pub use running::Running;

use crate::{programs, skipping, traces};
use folioswap_peer::{Cgroup, HIGHEST_PRIORITY, SwapLock, Zram};
use rights::Rights;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use watch::Watch;

/// A user who may do nothing but run programs, for [`Job::user`].
pub const NOBODY: u32 = 65534;

/// A program to be run, with its environment, options and time limits.
#[derive(Clone, Debug)]
pub struct Job {
    command: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    options: Vec<OsString>,
    directory: Option<PathBuf>,
    timeout: Duration,
    lingering: Duration,
    cgroup_limit: Option<u64>,
    user: Option<u32>,
    rights: Rights,
}

impl Job {
    /// Describes a program by its command, with a timeout of 900 s: a guard against hangs, which a
    /// busy host does not reach.
    pub fn new<I: IntoIterator<Item = A>, A: AsRef<OsStr>>(command: I) -> Self {
        Job {
            command: command.into_iter().map(|word| word.as_ref().to_owned()).collect(),
            environment: Vec::new(),
            options: Vec::new(),
            directory: None,
            timeout: Duration::from_secs(900),
            lingering: Duration::ZERO,
            cgroup_limit: None,
            user: None,
            rights: Rights::OfUser,
        }
    }
    /// Adds an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.into(), value.as_ref().to_owned()));
        self
    }
    /// Adds an option of `folioswap run`. The option has no effect under other engines.
    #[must_use]
    pub fn option(mut self, word: impl AsRef<OsStr>) -> Self {
        self.options.push(word.as_ref().to_owned());
        self
    }
    /// Runs the program in this directory instead of a fresh one.
    #[must_use]
    pub fn directory(mut self, path: &Path) -> Self {
        self.directory = Some(path.to_owned());
        self
    }
    /// Sets the time after which the program is killed and the test fails.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
    /// Lets descendants outlive the program for this long. Otherwise all of them must be gone when
    /// the program ends, with at most 20 s for the kernel to free their memory.
    #[must_use]
    pub fn lingering(mut self, time: Duration) -> Self {
        self.lingering = time;
        self
    }
    /// Puts a limit on the cgroup around the program also under folioswap, which takes it as its
    /// own when `--memory` is omitted.
    #[must_use]
    pub fn cgroup_limit(mut self, bytes: u64) -> Self {
        self.cgroup_limit = Some(bytes);
        self
    }
    /// Runs the program, folioswap included, as another user.
    #[must_use]
    pub fn user(mut self, id: u32) -> Self {
        self.user = Some(id);
        self
    }

    /// Runs the program, folioswap included, without CAP_SYS_PTRACE, and lets every user open
    /// `/dev/userfaultfd` where it runs.
    #[must_use]
    pub fn without_sys_ptrace(mut self) -> Self {
        self.rights = Rights::WithoutSysPtrace;
        self
    }

    /// Runs the program, folioswap included, as a user who may do nothing but run programs, and
    /// has the gate serve its calls. (Tests let him open the device, which is not used then;
    /// `bad_input` has one without it.)
    #[must_use]
    pub fn unprivileged(self) -> Self {
        self.without_sys_ptrace().user(NOBODY).option("--gate").option("unprivileged")
    }

    /// Runs the program to its end without a limit.
    pub fn unlimited(&self) -> Outcome {
        self.start(Engine::Nothing).finish()
    }
    /// Runs the program to its end under an engine.
    pub fn under(&self, engine: Engine) -> Outcome {
        self.start(engine).finish()
    }
    /// Runs the program to its end within `memory` bytes under the engine that is judged, and
    /// checks the limit and the ending.
    pub fn within(&self, memory: u64) -> Outcome {
        let outcome = self.under(engine(memory));
        outcome.check();
        outcome
    }

    /// Starts the program. One job runs at a time: other callers wait here.
    ///
    /// # Panics
    /// When the program cannot be started.
    pub fn start(&self, engine: Engine) -> Running {
        static ONE: Mutex<()> = Mutex::new(());
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let turn = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        traces::remove_stale();
        let scratch = ScratchDirectory(PathBuf::from(format!(
            "/var/tmp/folioswap-acc-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Relaxed)
        )));
        fs::create_dir_all(&scratch.0).expect("a directory in /var/tmp");
        if let Some(user) = self.user {
            std::os::unix::fs::chown(&scratch.0, Some(user), Some(user)).expect("chown");
        }
        let stats = scratch.0.join("stats.json");
        let mut words: Vec<OsString> = Vec::new();
        if let Engine::Folioswap { memory, scope } = &engine {
            words.push(programs::folioswap().into());
            words.push("run".into());
            if let Some(memory) = memory {
                words.extend(["--memory".into(), memory.to_string().into()]);
            }
            words.extend([
                "--memory-scope".into(),
                OsString::from(scope),
                "--validate".into(),
                "--stats-json".into(),
            ]);
            words.push(stats.clone().into());
            words.extend(
                std::env::var("FOLIOSWAP_ACCEPTANCE_OPTIONS")
                    .iter()
                    .flat_map(|options| options.split_whitespace().map(OsString::from).collect::<Vec<_>>()),
            );
            words.extend(self.options.iter().cloned());
            words.push("--".into());
        }
        words.extend(self.command.iter().cloned());

        let zram = match engine {
            // The swap is so large that only the limit matters, never the size of the swap.
            Engine::Kernel { .. } => Some(only_swap(8 << 30).expect("zram for a kernel run")),
            _ => None,
        };
        let limit = match engine {
            Engine::Kernel { memory } => Some(memory),
            _ => self.cgroup_limit,
        };
        let cgroup = match Cgroup::new("folioswap-acc-", limit) {
            Ok(cgroup) => {
                if zram.is_none() {
                    // A test beside this one may have the kernel swap. Without the file there is no
                    // such swap.
                    let _ = cgroup.without_kernel_swap();
                }
                Some(cgroup)
            }
            Err(error) => {
                assert!(zram.is_none(), "a kernel run needs a memory cgroup: {error}");
                skipping::note_part(&format!("memory not watched, no memory cgroup: {error}"));
                None
            }
        };
        let traces_before = traces::present();
        let (out, err) = (scratch.0.join("stdout"), scratch.0.join("stderr"));
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .stdin(Stdio::null())
            .stdout(File::create(&out).expect("file"))
            .stderr(File::create(&err).expect("file"))
            .current_dir(self.directory.as_deref().unwrap_or(&scratch.0))
            .process_group(0)
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        let entrance = cgroup
            .as_ref()
            .map(|cgroup| fs::OpenOptions::new().write(true).open(cgroup.entrance()).expect("cgroup.procs"));
        let user = self.user;
        let device = (self.rights == Rights::WithoutSysPtrace).then(|| rights::device_for_all(&scratch.0));
        // SAFETY: only async-signal-safe calls in the child: write, unshare, mount, prctl, set*id,
        // close_range.
        unsafe {
            command.pre_exec(move || {
                if let Some(mut entrance) = entrance.as_ref() {
                    entrance.write_all(b"0")?;
                }
                if let Some(device) = &device {
                    rights::give_up_sys_ptrace(device)?;
                }
                if let Some(user) = user
                    && (libc::setgroups(0, std::ptr::null()) != 0
                        || libc::setgid(user) != 0
                        || libc::setuid(user) != 0)
                {
                    return Err(io::Error::last_os_error());
                }
                // A descriptor that the caller of the tests left open (a lock, a log) must not
                // reach the program.
                let flags = libc::CLOSE_RANGE_CLOEXEC as i32;
                if libc::close_range(3, libc::c_uint::MAX, flags) != 0
                    || libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0
                {
                    return Err(io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let started = Instant::now();
        #[expect(
            clippy::zombie_processes,
            reason = "Running waits with wait4, which also tells the resources used"
        )]
        let child = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", words[0].display()));
        let pid = child.id() as i32;
        let watch = cgroup.as_ref().map(Watch::start);
        Running {
            job: self.clone(),
            engine,
            pid,
            started,
            ended: None,
            watch,
            cgroup,
            zram,
            stats,
            out,
            err,
            traces_before,
            scratch,
            _turn: turn,
        }
    }
}

/// The directory of one run, removed on drop.
struct ScratchDirectory(PathBuf);

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// A zram device with LZ4 that has the highest priority, so that all swapping goes to it.
fn only_swap(bytes: u64) -> io::Result<Zram> {
    let turn = Arc::new(SwapLock::take(|| false)?);
    turn.remove_stale();
    Zram::new(&turn, bytes, Some(HIGHEST_PRIORITY), Some("lz4"))
}
