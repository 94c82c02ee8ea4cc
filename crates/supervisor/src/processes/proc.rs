//! What `/proc` tells about processes, and the end of whole trees.

use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};
use std::{fs, io::Read, path::Path, time::Duration};

/// The fields of `/proc/PID/status` that the census needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Name of the program (comm).
    pub name: String,
    /// One letter: R, S, D, T, Z, ...
    pub state: char,
    /// Anonymous resident bytes.
    pub anonymous: u64,
    /// Resident bytes of shared memory.
    pub shared: u64,
}

/// Reads it; `None` when the process is gone.
pub fn status(pid: u32) -> Option<Status> {
    parse_status(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

/// Anonymous resident bytes of a process, those that it shares with relatives after a fork counted in proportion. `None` when
/// it is gone or may not be looked at. Cost: the kernel walks all its page tables.
pub fn proportional_anonymous(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix("Pss_Anon:"))?;
    value.split_whitespace().next()?.parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

fn parse_status(text: &str) -> Option<Status> {
    let mut status = Status { state: '?', ..Status::default() };
    let kilobytes =
        |value: &str| value.split_whitespace().next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) << 10;
    for line in text.lines() {
        let (key, value) = line.split_once(':')?;
        match key {
            "Name" => status.name = value.trim().to_owned(),
            "State" => status.state = value.trim().chars().next().unwrap_or('?'),
            "RssAnon" => status.anonymous = kilobytes(value),
            "RssShmem" => status.shared = kilobytes(value),
            _ => {}
        }
    }
    Some(status)
}

/// State letter and parent of a process; `None` when it is gone.
pub fn state_and_parent(pid: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // comm may hold anything, parentheses and blanks included: the fields begin after the last one.
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// True when `pid` is a descendant of `ancestor` (or it itself).
///
/// `ancestor` must be alive, and the subreaper of its descendants: one whose parent ends meanwhile is then still below it.
pub fn descends_from(pid: u32, ancestor: u32) -> bool {
    descends_by(pid, ancestor, |pid| Some(state_and_parent(pid)?.1))
}

/// The same by what `parent_of` says at the time of each call: `None` when there is no such process by then.
///
/// A parent may end, and be waited for, between the two looks at its child and at itself. Its child has another parent from then
/// on, so the walk begins anew: taken for a stranger, a forked child would be refused, and it cannot go on without its pages.
fn descends_by(pid: u32, ancestor: u32, mut parent_of: impl FnMut(u32) -> Option<u32>) -> bool {
    let mut at = pid;
    // A bound: chains of processes are far shorter, and only a process that ends right now makes one begin anew.
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

/// All live and dead-but-unwaited descendants of `root`, parents before their children.
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
                // A child moves to another thread of its parent when its thread ends: it may be seen twice.
                if !found.contains(&child) {
                    found.push(child);
                }
            }
        }
    }
}

/// The same for kernels without `children` files: by everybody's parent.
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

/// Orphans of the tree below become children of this process.
pub fn become_subreaper() {
    // SAFETY: sets an attribute of this process.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

/// Kills all descendants of this process, which is their subreaper, again and again until none is left.
pub fn kill_descendants() {
    loop {
        for pid in descendants(std::process::id()) {
            if let Some(pid) = Pid::from_raw(pid as i32) {
                // It may have ended meanwhile; or it belongs to somebody else, and ends with what it waits for.
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
mod tests {
    use super::*;

    #[test]
    fn status_is_read() {
        let text = "Name:\tmy (odd) prog\nState:\tS (sleeping)\nRssAnon:\t     256 kB\nRssFile:\t 1 kB\nRssShmem:\t       4 kB\n";
        let expected =
            Status { name: "my (odd) prog".into(), state: 'S', anonymous: 256 << 10, shared: 4 << 10 };
        assert_eq!(parse_status(text), Some(expected));
        assert!(status(std::process::id()).expect("alive").anonymous > 0);
    }

    #[test]
    fn both_walks_find_a_grandchild() {
        let mut child = std::process::Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().expect("sh");
        let until = std::time::Instant::now() + Duration::from_secs(10);
        while descendants(child.id()).is_empty() {
            assert!(std::time::Instant::now() < until, "sleep runs");
            std::thread::sleep(Duration::from_millis(5));
        }
        let me = std::process::id();
        for found in [descendants(me), descendants_by_parent(me)] {
            assert!(found.contains(&child.id()));
            let grandchild =
                found.iter().find(|&&pid| state_and_parent(pid).is_some_and(|(_, p)| p == child.id()));
            assert!(descends_from(*grandchild.expect("sleep runs"), me));
        }
        for pid in descendants(child.id()) {
            kill_process(Pid::from_raw(pid as i32).expect("not 0"), Signal::KILL).expect("killed");
        }
        child.wait().expect("waited");
        assert!(!descends_from(1, me));
    }

    #[test]
    fn a_parent_that_ends_during_the_walk_makes_no_stranger() {
        // 1 is the ancestor, 9 descends from it by 5, which ends after each of the first looks at 9, and is waited for.
        for ends in 0..4 {
            let mut looks = 0;
            let parent_of = |pid| match pid {
                9 => {
                    looks += 1;
                    Some(if looks <= ends { 5 } else { 1 })
                }
                _ => None,
            };
            assert!(descends_by(9, 1, parent_of), "it ended {ends} times");
        }
    }

    #[test]
    fn who_is_gone_or_has_other_ancestors_is_a_stranger() {
        assert!(!descends_by(9, 1, |_| None));
        assert!(!descends_by(9, 1, |pid| (pid == 9).then_some(0)));
        assert!(!descends_by(9, 1, |pid| Some(if pid == 9 { 5 } else { 0 })));
        // /proc that never says anything coherent ends the walk too.
        assert!(!descends_by(9, 1, |pid| (pid == 9).then_some(5)));
    }
}
