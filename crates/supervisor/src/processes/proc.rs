//! Processes as `/proc` describes them, and the end of whole trees.
//!
//! The crate `procfs` (0.18) is not used here. Its `Status` cuts the name of a program at a colon,
//! and it reads all fields of a file of which the census needs four, for each process of the tree
//! up to ten times a second.

use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};
use std::{fs, io::Read, path::Path, time::Duration};

/// Units of the times in `/proc/PID/stat` in a second (USER_HZ), on every machine that Linux
/// supports.
const TICKS_PER_SECOND: u64 = 100;

/// The fields of `/proc/PID/status` that the census needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The name of the program (comm), [`printable`].
    pub name: String,
    /// The state, one letter: R, S, D, T, Z, ...
    pub state: char,
    /// Resident anonymous memory, in bytes.
    pub anonymous: u64,
    /// Resident shared memory, in bytes.
    pub shared: u64,
}

/// Reads the status of a process; `None` when the process is gone.
pub fn status(pid: u32) -> Option<Status> {
    parse_status(&text_of(pid, "status")?)
}

/// The filters of system calls (seccomp) that the calling process is under, and so whatever it
/// starts; 0 also where that cannot be read.
pub fn own_filters() -> u64 {
    let text = text_of(std::process::id(), "status").unwrap_or_default();
    value_of(&text, "Seccomp_filters:").and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// The name of a process for a message; a question mark when the process is gone.
pub fn name(pid: u32) -> String {
    status(pid).map_or_else(|| "?".to_owned(), |status| status.name)
}

/// The process of a thread, and the user that it really belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The id of the process.
    pub process: u32,
    /// The real user id.
    pub user: u32,
}

/// Reads whose thread this is; `None` when the thread is gone.
pub fn identity(thread: u32) -> Option<Identity> {
    parse_identity(&text_of(thread, "status")?)
}

fn parse_identity(text: &str) -> Option<Identity> {
    let field = |key| value_of(text, key)?.split_whitespace().next()?.parse().ok();
    Some(Identity { process: field("Tgid:")?, user: field("Uid:")? })
}

/// The text of a file of `/proc/PID`. A process may give itself a name that is not UTF-8; the rest
/// is as readable as ever.
fn text_of(pid: u32, file: &str) -> Option<String> {
    let bytes = contents_of(format!("/proc/{pid}/{file}")).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// What follows a key at the beginning of a line. The kernel escapes the line ends of a name, so
/// the first line with a key is the field.
fn value_of<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(key))
}

/// The contents of a file of `/proc`, which has no size before it is read: most come with one call,
/// where `fs::read` makes eight.
fn contents_of(path: impl AsRef<Path>) -> std::io::Result<Vec<u8>> {
    let mut file = fs::File::open(path)?;
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(bytes),
            count => bytes.extend_from_slice(&buffer[..count]),
        }
    }
}

/// A name that a process chose, for a message: control characters, which would command the user's
/// terminal, are shown by their codes.
pub fn printable(name: &str) -> String {
    let shown = |c: char| if c.is_control() { format!("\\x{:02x}", u32::from(c)) } else { c.to_string() };
    name.chars().map(shown).collect()
}

/// The resident anonymous bytes of a process; pages that it shares with relatives after a fork
/// count in proportion. `None` when the process is gone or may not be looked at. The cost is a walk
/// of all its page tables by the kernel.
pub fn proportional_anonymous(pid: u32) -> Option<u64> {
    bytes_in(&text_of(pid, "smaps_rollup")?, "Pss_Anon:")
}

/// The memory of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The most address space that it ever had, in bytes, since its exec or the fork that made it.
    pub peak: u64,
    /// Resident anonymous memory, in bytes.
    pub anonymous: u64,
    /// Resident shared memory, in bytes.
    pub shared: u64,
}

/// Reads the memory of a process; `None` when it has none any more.
///
/// The first thread of a process may end before the others, and has no memory from then on. Any
/// thread that goes on has all of it.
pub fn memory(pid: u32) -> Option<Memory> {
    if let Some(memory) = parse_memory(&text_of(pid, "status")?) {
        return Some(memory);
    }
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let mut texts = threads.filter_map(|thread| contents_of(thread.path().join("status")).ok());
    texts.find_map(|text| parse_memory(&String::from_utf8_lossy(&text)))
}

fn parse_memory(text: &str) -> Option<Memory> {
    Some(Memory {
        peak: bytes_in(text, "VmPeak:")?,
        anonymous: bytes_in(text, "RssAnon:")?,
        shared: bytes_in(text, "RssShmem:")?,
    })
}

/// The number behind this key, which the kernel gives in kB, in bytes.
fn bytes_in(text: &str, key: &str) -> Option<u64> {
    bytes_of(value_of(text, key)?)
}

fn bytes_of(value: &str) -> Option<u64> {
    value.split_whitespace().next()?.parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

fn parse_status(text: &str) -> Option<Status> {
    let mut status = Status { state: '?', ..Status::default() };
    for line in text.lines() {
        let (key, value) = line.split_once(':')?;
        match key {
            "Name" => status.name = printable(value.trim()),
            "State" => status.state = value.trim().chars().next().unwrap_or('?'),
            "RssAnon" => status.anonymous = bytes_of(value).unwrap_or(0),
            "RssShmem" => status.shared = bytes_of(value).unwrap_or(0),
            _ => {}
        }
    }
    Some(status)
}

/// The state letter and the parent of a process; `None` when the process is gone.
pub fn state_and_parent(pid: u32) -> Option<(char, u32)> {
    let stat = text_of(pid, "stat")?;
    // comm may hold any character, parentheses and blanks included: the fields begin after the last
    // parenthesis.
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// The processor time of a process, user and system, in nanoseconds; `None` when it is gone. The
/// kernel counts it in hundredths of a second.
pub fn processor_time(pid: u32) -> Option<u64> {
    parse_processor_time(&text_of(pid, "stat")?)
}

fn parse_processor_time(stat: &str) -> Option<u64> {
    // The fields after the name begin with the third, the state.
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user.saturating_add(system).saturating_mul(1_000_000_000 / TICKS_PER_SECOND))
}

/// Whether `pid` is a descendant of `ancestor`, or `ancestor` itself.
///
/// `ancestor` must be alive and the subreaper of its descendants, so that a process whose parent
/// ends meanwhile is still below it.
pub fn descends_from(pid: u32, ancestor: u32) -> bool {
    descends_by(pid, ancestor, |pid| Some(state_and_parent(pid)?.1))
}

/// [`descends_from`] with the answers of `parent_of`, which gives `None` when the process does not
/// exist at the time of the call.
///
/// A parent may end, and be waited for, between the look at its child and the look at itself. The
/// child has another parent from then on, so the walk begins anew: taken for a stranger, a forked
/// child would be refused, and it cannot go on without its pages.
fn descends_by(pid: u32, ancestor: u32, mut parent_of: impl FnMut(u32) -> Option<u32>) -> bool {
    let mut at = pid;
    // The bound is never reached: chains of processes are far shorter, and only a process that ends
    // right now makes the walk begin anew.
    for _ in 0..4096 {
        if at == ancestor {
            return true;
        }
        match parent_of(at) {
            Some(parent) if parent > 0 => at = parent,
            None if at != pid => at = pid,
            _ => return false,
        }
    }
    false
}

/// All descendants of `root`, parents before their children; those that ended and were not waited
/// for are among them.
pub fn descendants(root: u32) -> Vec<u32> {
    if !Path::new(&format!("/proc/{root}/task/{root}/children")).exists() {
        return descendants_by_parent(root);
    }
    let mut found = Vec::new();
    let mut text = String::new();
    let mut next = 0;
    collect_children(root, &mut text, &mut found);
    while next < found.len() {
        let pid = found[next];
        next += 1;
        collect_children(pid, &mut text, &mut found);
    }
    found
}

fn collect_children(pid: u32, text: &mut String, found: &mut Vec<u32>) {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return };
    for thread in threads.flatten() {
        text.clear();
        let opened = fs::File::open(thread.path().join("children"));
        if opened.and_then(|mut file| file.read_to_string(text)).is_ok() {
            for child in text.split_whitespace().filter_map(|word| word.parse().ok()) {
                // A child moves to another thread of its parent when its thread ends, so it may be
                // seen twice.
                if !found.contains(&child) {
                    found.push(child);
                }
            }
        }
    }
}

/// [`descendants`] for kernels without `children` files: looks at the parent of every process.
fn descendants_by_parent(root: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let all: Vec<(u32, u32)> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter_map(|pid| Some((pid, state_and_parent(pid)?.1)))
        .collect();
    let mut found = Vec::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        for &(pid, _) in
            all.iter().filter(|(pid, its)| *its == parent && !found.contains(pid)).collect::<Vec<_>>()
        {
            found.push(pid);
            parents.push(pid);
        }
    }
    found
}

/// Whether the first thread of a process ends, or has ended; `None` when the process is gone.
pub fn is_exiting(pid: u32) -> Option<bool> {
    /// The kernel's mark of such a thread (`PF_EXITING` in its include/linux/sched.h).
    const EXITING: u64 = 4;
    let stat = text_of(pid, "stat")?;
    let flags: u64 = stat[stat.rfind(')')? + 1..].split_whitespace().nth(6)?.parse().ok()?;
    Some(flags & EXITING != 0)
}

/// The number in our namespace of a process's thread that has this number in its own.
pub fn thread_numbered(pid: u32, number: u64) -> Option<u32> {
    let own_number = |thread: u32| {
        let status = text_of(pid, &format!("task/{thread}/status"))?;
        value_of(&status, "NSpid:")?.split_whitespace().last()?.parse::<u64>().ok()
    };
    let likely = [pid].into_iter().chain(u32::try_from(number).ok());
    let mut found = likely.filter(|thread| own_number(*thread) == Some(number));
    found.next().or_else(|| {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        let threads = threads.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        threads.into_iter().find(|thread| own_number(*thread) == Some(number))
    })
}

/// Whether a process has executed a file with a privilege that it had not (AT_SECURE of
/// getauxval(3)); `None` where that cannot be read.
pub fn is_secure(pid: u32) -> Option<bool> {
    let words = contents_of(format!("/proc/{pid}/auxv")).ok()?;
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
    let mut pairs = words.chunks_exact(16).map(|pair| (word(&pair[..8]), word(&pair[8..])));
    pairs.find(|(kind, _)| *kind == libc::AT_SECURE).map(|(_, value)| value != 0)
}

/// Whether a process has the numbers of processes that we have. False where we may not look.
pub fn shares_pid_namespace(pid: u32) -> bool {
    let ours = std::fs::read_link("/proc/self/ns/pid").ok();
    ours.is_some() && ours == std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok()
}

/// Makes this process the subreaper of the tree below it: orphans of the tree become its children.
pub fn become_subreaper() {
    // SAFETY: sets an attribute of this process.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

/// Kills all descendants of this process, which must be their subreaper, again and again until none
/// is left.
pub fn kill_descendants() {
    loop {
        for pid in descendants(std::process::id()) {
            if let Some(pid) = Pid::from_raw(pid as i32) {
                // A failure is harmless: the process may have ended meanwhile, or belongs to
                // another user and ends with the process that it waits for.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests;
