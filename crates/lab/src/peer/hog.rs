//! The tasks: processes that fill memory and wait.

use super::{Load, PeerError};
use crate::memory::Memory;
use folioswap_devices::PAGE_SIZE;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const READY: &str = "ready";
const PAGE_WORDS: usize = PAGE_SIZE / size_of::<u64>();

/// Runs a task: enters the group, fills `bytes` bytes with data that compresses to about a half,
/// says so, and waits for the end of its input.
///
/// # Errors
/// The group cannot be entered.
pub fn hog(bytes: u64, group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), "0")?;
    let memory = Memory::zeroed(bytes as usize);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for page in 0..memory.bytes() / PAGE_SIZE {
        for word in 0..PAGE_WORDS / 2 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // SAFETY: the word lies in the first half of the page, inside the memory, which nobody
            // else knows.
            unsafe { memory.start().cast::<u64>().add(page * PAGE_WORDS + word).write_volatile(state) };
        }
    }
    println!("{READY}");
    io::stdout().flush()?;
    let mut end = Vec::new();
    io::stdin().read_to_end(&mut end).map(|_| ())
}

/// Running tasks; killed on drop.
pub(super) struct Hogs {
    children: Vec<Child>,
    ready: Arc<AtomicU32>,
}

impl Hogs {
    pub(super) fn start(load: Load, program: &Path, group: &Path) -> io::Result<Hogs> {
        let mut hogs = Hogs { children: Vec::new(), ready: Arc::new(AtomicU32::new(0)) };
        for _ in 0..load.tasks {
            let mut command = Command::new(program);
            command.args(["lab", "hog", "--bytes", &(load.task_mib << 20).to_string(), "--group"]).arg(group);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
            // SAFETY: prctl is async-signal-safe and touches no memory.
            unsafe {
                command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                    0 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                });
            }
            let mut child = command.spawn()?;
            if let Some(output) = child.stdout.take() {
                let ready = Arc::clone(&hogs.ready);
                std::thread::spawn(move || {
                    if BufReader::new(output).lines().any(|line| line.is_ok_and(|line| line == READY)) {
                        ready.fetch_add(1, Ordering::Release);
                    }
                });
            }
            hogs.children.push(child);
        }
        Ok(hogs)
    }

    pub(super) fn all_ready(&mut self) -> Result<bool, PeerError> {
        for child in &mut self.children {
            if let Some(status) = child.try_wait().map_err(super::step("waiting for a task"))? {
                return Err(PeerError::TaskEnded(status.to_string()));
            }
        }
        Ok(self.ready.load(Ordering::Acquire) as usize == self.children.len())
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        for child in &mut self.children {
            drop(child.kill());
            drop(child.wait());
        }
    }
}
