//! Whether two processes have the same memory: a pager has that of its program.
//!
//! kcmp(2) tells, where it may be asked. The filters of container engines forbid it without
//! CAP_SYS_PTRACE; then the kernel shows it by what it does to such processes together.

use super::proc::{name, state_and_parent};
use rustix::io::Errno;
use std::fs;

/// The highest value of `oom_score_adj`.
const HIGHEST: i32 = 1000;

/// What kcmp(2) says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Same,
    Other,
    /// One of them has ended.
    Gone,
    /// We may not look at one of them.
    Hidden,
    /// A filter forbids the call, or the kernel does not have it.
    Forbidden,
}

fn ask(one: u32, other: u32) -> Answer {
    const KCMP_VM: i32 = 1;
    // SAFETY: kcmp(2) compares two processes by number; it touches no memory of ours.
    let compare = |one: u32, other: u32| unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_VM, 0, 0) };
    match compare(one, other) {
        0 => Answer::Same,
        1.. => Answer::Other,
        _ if super::last_error() == Errno::SRCH => Answer::Gone,
        // Everybody may compare himself with himself.
        _ if compare(std::process::id(), std::process::id()) == 0 => Answer::Hidden,
        _ => Answer::Forbidden,
    }
}

/// Whether two processes have the same memory; `None` where one has ended, or we may not ask.
pub fn share_memory(one: u32, other: u32) -> Option<bool> {
    match ask(one, other) {
        Answer::Same => Some(true),
        Answer::Other => Some(false),
        Answer::Gone | Answer::Hidden | Answer::Forbidden => None,
    }
}

/// What we can prove of two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// They have the same memory.
    Same,
    /// They have not, or one has ended.
    Other,
    /// Nothing: we may not look at one of them.
    Hidden,
}

/// What can be proven of whether the process `pager` has the memory of `parent`.
pub fn proof(pager: u32, parent: u32) -> Proof {
    match ask(pager, parent) {
        Answer::Same => Proof::Same,
        Answer::Other | Answer::Gone => Proof::Other,
        Answer::Hidden => Proof::Hidden,
        Answer::Forbidden => match change_together(pager, parent) {
            Some(true) => Proof::Same,
            Some(false) => Proof::Other,
            None => Proof::Hidden,
        },
    }
}

/// Whether a change of the one's `oom_score_adj` is one of the other's: the kernel keeps it equal
/// in all processes with the same memory, but for a child between vfork and exec. The value is what
/// it was afterwards. `None`: it cannot be changed.
fn change_together(one: u32, other: u32) -> Option<bool> {
    let path = |pid| format!("/proc/{pid}/oom_score_adj");
    let read = |pid| fs::read_to_string(path(pid)).ok()?.trim().parse::<i32>().ok();
    let before = read(one)?;
    if read(other)? != before {
        return Some(false);
    }
    // To raise it is always allowed, and so is the way back to where it was.
    let changed = if before < HIGHEST { before + 1 } else { before - 1 };
    fs::write(path(one), changed.to_string()).ok()?;
    let followed = read(other);
    fs::write(path(one), before.to_string()).ok()?;
    Some(followed? == changed && read(other)? == before)
}

/// Whether this process is the pager of its parent: it has that one's memory, and a pager's name. A
/// child between vfork and exec has the memory too.
pub fn is_pager(pid: u32) -> bool {
    name(pid).starts_with("pager-") && shares_memory_with_its_parent(pid)
}

/// Whether the process uses the memory of its parent, as between vfork and exec, or as a pager
/// does. Where the kernel may not be asked: whether both have the same mappings, as a child has
/// just after a fork too.
pub fn shares_memory_with_its_parent(pid: u32) -> bool {
    let Some((_, parent)) = state_and_parent(pid) else { return false };
    match ask(pid, parent) {
        Answer::Same => true,
        Answer::Other | Answer::Gone | Answer::Hidden => false,
        Answer::Forbidden => have_same_mappings(pid, parent),
    }
}

fn have_same_mappings(one: u32, other: u32) -> bool {
    let mappings = |pid| fs::read_to_string(format!("/proc/{pid}/maps")).ok();
    mappings(one).is_some_and(|text| !text.is_empty() && Some(text) == mappings(other))
}

#[cfg(test)]
mod tests;
