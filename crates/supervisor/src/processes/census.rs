//! Descendants that are not members: a walk of the tree finds them, the limit counts them, and the
//! report names them.

use super::{
    elf::{self, Image},
    proc::{self, Status},
    program, same_memory,
};
use rustix::time::{ClockId, clock_gettime};
use std::{
    collections::{HashMap, HashSet},
    fs::File,
    path::Path,
    time::{Duration, Instant},
};

/// The time that a process has from its first sight, or its exec, until it must be a member.
const GRACE: Duration = Duration::from_millis(150);
/// The walks take at most one part in so many of the supervisor's time. Processor time counts, not
/// time spent waiting for a processor: a walk that only waited was not expensive, and the processes
/// to be found would be gone before the next.
const COST_DIVISOR: u32 = 50;
/// The shortest and the longest time between two walks.
const INTERVAL: Duration = Duration::from_millis(100);
const INTERVAL_MAX: Duration = Duration::from_secs(2);

/// Above this size of a process, memory that it shares with relatives is counted in proportion.
const LARGE_BYTES: u64 = 4 << 20;

/// The most names that are told apart; the last entry stands for all others.
const PROGRAMS_MAX: usize = 64;

/// Why a process is not a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The program is statically linked.
    Static,
    /// The program runs with the rights of another user or group, or with a file capability.
    SetUserId,
    /// The agent could not have a userfaultfd in the process.
    NoUserfault,
    /// Another reason: raw clone, a network namespace from which it reaches nothing, an emptied
    /// descriptor table, ...
    Other,
}

/// Unmanaged processes of one name and reason.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Unmanaged {
    /// The name of the program (comm).
    pub name: String,
    /// Why the processes are unmanaged.
    pub reason: Reason,
    /// The number of processes.
    pub processes: u64,
    /// The most bytes that one of them took.
    pub peak_bytes: u64,
}

/// A descendant that a walk has seen.
struct Seen {
    /// The start of its grace time.
    since: Instant,
    /// The index of its entry in `programs`, once the process counts as unmanaged.
    entry: Option<usize>,
}

/// The result of one walk.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// The bytes that unmanaged descendants take.
    pub bytes: u64,
    /// The number of unmanaged descendants.
    pub processes: u64,
}

/// The census of the tree below this process.
pub struct Census {
    seen: HashMap<u32, Seen>,
    no_userfault: HashSet<u32>,
    programs: Vec<Unmanaged>,
    next: Instant,
}

impl Census {
    /// A census whose first walk is due at once, because our own processes count from the start.
    pub fn new(now: Instant) -> Self {
        Census { seen: HashMap::new(), no_userfault: HashSet::new(), programs: Vec::new(), next: now }
    }

    /// When the next walk is due.
    pub fn due(&self) -> Instant {
        self.next
    }

    /// Notes that the connection of a member has ended: a process that still lives is another image
    /// now and gets the grace time anew.
    pub fn left(&mut self, pid: u32, now: Instant) {
        self.no_userfault.remove(&pid);
        self.seen.insert(pid, Seen { since: now, entry: None });
    }

    /// Notes that a process is a member now. If a walk came between its exec and its first message,
    /// it was not unmanaged, but slow.
    pub fn joined(&mut self, pid: u32) {
        let Some(entry) = self.seen.get_mut(&pid).and_then(|seen| seen.entry.take()) else { return };
        let program = &mut self.programs[entry];
        program.processes -= 1;
        if program.processes == 0 {
            program.peak_bytes = 0;
        }
    }

    /// Notes that a process cannot have a userfaultfd, as its agent has said.
    pub fn cannot_have_userfault(&mut self, pid: u32) {
        self.no_userfault.insert(pid);
    }

    /// All programs that were ever unmanaged.
    pub fn programs(&self) -> impl Iterator<Item = &Unmanaged> {
        self.programs.iter().filter(|program| program.processes > 0)
    }

    /// The names of the programs that took most memory, for a message.
    pub fn largest(&self) -> String {
        const SHOWN: usize = 3;
        let mut programs: Vec<&Unmanaged> = self.programs().collect();
        programs.sort_by_key(|entry| std::cmp::Reverse(entry.peak_bytes));
        programs.iter().take(SHOWN).map(|entry| entry.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// Walks the tree below this process; all but the `members` are unmanaged after their grace
    /// time.
    pub fn walk(&mut self, members: &HashSet<u32>, now: Instant) -> Found {
        let started = computed();
        let descendants = proc::descendants(std::process::id());
        let alive: HashSet<u32> = descendants.iter().copied().collect();
        self.seen.retain(|pid, _| alive.contains(pid));
        self.no_userfault.retain(|pid| alive.contains(pid));
        let mut found = Found::default();
        for pid in descendants {
            let seen = self.seen.entry(pid).or_insert(Seen { since: now, entry: None });
            if members.contains(&pid) {
                seen.since = now;
                continue;
            }
            if now.duration_since(seen.since) < GRACE {
                continue;
            }
            let Some(status) = proc::status(pid) else { continue };
            // Memory that is the parent's is counted already.
            if matches!(status.state, 'Z' | 'X') || same_memory::shares_memory_with_its_parent(pid) {
                continue;
            }
            // A large process may be a fork that shares most of its memory.
            let anonymous = match status.anonymous {
                large if large > LARGE_BYTES => proc::proportional_anonymous(pid).unwrap_or(large),
                small => small,
            };
            let bytes = anonymous + status.shared;
            let entry = match seen.entry {
                // Another name means another program, by exec.
                Some(entry) if self.programs[entry].name == status.name || entry == PROGRAMS_MAX - 1 => entry,
                _ => {
                    let reason =
                        if self.no_userfault.contains(&pid) { Reason::NoUserfault } else { reason(pid) };
                    let entry = Self::enter(&mut self.programs, status, reason);
                    seen.entry = Some(entry);
                    entry
                }
            };
            self.programs[entry].peak_bytes = self.programs[entry].peak_bytes.max(bytes);
            found.bytes += bytes;
            found.processes += 1;
        }
        self.next = Instant::now()
            + (computed().saturating_sub(started) * COST_DIVISOR).clamp(INTERVAL, INTERVAL_MAX);
        found
    }

    fn enter(programs: &mut Vec<Unmanaged>, status: Status, reason: Reason) -> usize {
        let same = programs.iter().position(|entry| entry.name == status.name && entry.reason == reason);
        let entry = same.unwrap_or_else(|| {
            if programs.len() < PROGRAMS_MAX {
                let name =
                    if programs.len() + 1 < PROGRAMS_MAX { status.name } else { "(all others)".to_owned() };
                programs.push(Unmanaged { name, reason, processes: 0, peak_bytes: 0 });
            }
            programs.len() - 1
        });
        programs[entry].processes += 1;
        entry
    }
}

/// The processor time of this thread.
fn computed() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

/// Why a process that said nothing is unmanaged, by its executable.
fn reason(pid: u32) -> Reason {
    let link = format!("/proc/{pid}/exe");
    let Ok(file) = File::open(&link) else { return Reason::SetUserId };
    if file.metadata().is_ok_and(|found| program::privilege(Path::new(&link), &found).is_some()) {
        return Reason::SetUserId;
    }
    match elf::inspect(&file) {
        Ok(Image::Static) => Reason::Static,
        _ => Reason::Other,
    }
}

#[cfg(test)]
mod tests;
