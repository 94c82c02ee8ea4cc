//! The devices of a running group, as `folioswap swapon --show` prints them.

use crate::job::Running;
use crate::programs::run_folioswap;
use crate::waiting::wait_until;
use std::time::{Duration, Instant};

/// The longest time that a supervisor may take to answer on a busy machine. `swapon --show` itself
/// passes over one that does not answer within a second.
const ANSWER: Duration = Duration::from_secs(10);

/// A device of the group.
pub struct Row {
    /// Its name.
    pub name: String,
    /// Bytes used. A device that is granted in clusters counts whole clusters, of which a process
    /// takes many at a time before it fills them.
    pub used: u64,
    /// The whole line.
    pub line: String,
}

fn rows(running: &Running) -> Vec<Row> {
    let shown = run_folioswap(&["swapon", "--show", "--bytes", &running.pid.to_string()]);
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
    // The columns are counted from the right, because a name may contain spaces.
    let Some(after) = columns.iter().rev().position(|&name| name == "USED") else { return Vec::new() };
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let used = words[words.len() - 1 - after].parse().expect("bytes");
        Row { name: words[0].to_owned(), used, line: line.to_owned() }
    };
    lines.map(row).collect()
}

/// The devices of a group; none when the group has ended.
pub fn table(running: &Running) -> Vec<Row> {
    let begun = Instant::now();
    loop {
        let rows = rows(running);
        if !rows.is_empty() || begun.elapsed() > ANSWER {
            return rows;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Bytes used of a device, or `None` when the group has no such device.
pub fn used(running: &Running, name: &str) -> Option<u64> {
    table(running).into_iter().find(|row| row.name == name).map(|row| row.used)
}

/// Bytes used of all devices of a group.
///
/// # Panics
/// When the group has ended.
#[track_caller]
pub fn used_in_all(running: &Running) -> u64 {
    let rows = table(running);
    assert!(!rows.is_empty(), "nothing is shown of it: {}", running.errors());
    rows.iter().map(|row| row.used).sum()
}

/// Waits until at least `bytes` bytes of a device are used.
///
/// # Panics
/// When the group ends, or when 60 s have passed.
#[track_caller]
pub fn wait_for_use(running: &mut Running, name: &str, bytes: u64) {
    wait_until(name, || {
        assert!(!running.poll(), "it has ended: {}", running.errors());
        used(running, name).is_some_and(|used| used >= bytes)
    });
}
