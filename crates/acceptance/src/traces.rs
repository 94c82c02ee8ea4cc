//! Traces that a run may leave behind: files, mounts and shared memory that carry our name.
//! Sockets, memory files and unlinked files live only as long as a process has them open, and
//! processes are looked for in the cgroup.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const PLACES: &[&str] = &["/tmp", "/var/tmp", "/dev/shm", "/run", "/run/user/0"];

/// The traces that exist now, without those that name a living process of another run.
pub fn present() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for place in PLACES {
        for entry in fs::read_dir(place).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            // Directories of this crate itself are no traces, nor are the notes of a test that
            // compares with the kernel's swap and may run beside this one.
            let of_tests = ["folioswap-acc", "folioswap-peer"].iter().any(|prefix| name.starts_with(prefix));
            if name.contains("folioswap") && !of_tests && !names_a_process(&name) {
                found.insert(format!("{place}/{name}"));
            }
        }
    }
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let ours = |line: &&str| line.contains("folioswap") && !is_of_another_test(line);
    found.extend(mounts.lines().filter(ours).map(|line| format!("mount {line}")));
    let segments = fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    found.extend(segments.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (id, creator) = (fields.get(1)?, fields.get(4)?);
        // A segment of ours would outlive its creator.
        (!Path::new("/proc").join(creator).exists()).then(|| format!("System V shared memory {id}"))
    }));
    found
}

fn processes_named(name: &str) -> impl Iterator<Item = &str> {
    let numbers = name.split(|c: char| !c.is_ascii_digit()).filter(|digits| digits.len() > 1);
    numbers.filter(|digits| Path::new("/proc").join(digits).exists())
}

fn names_a_process(name: &str) -> bool {
    processes_named(name).next().is_some()
}

/// Whether a mount belongs to a test process that runs beside this one: its directory is named
/// after that process.
fn is_of_another_test(mount: &str) -> bool {
    let own = std::process::id().to_string();
    let place =
        mount.split_whitespace().nth(1).and_then(|place| place.strip_prefix("/var/tmp/folioswap-acc-"));
    place.is_some_and(|place| processes_named(place).any(|process| process != own))
}

/// Removes the directories of test processes that were killed.
pub fn remove_stale() {
    for entry in fs::read_dir("/var/tmp").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(rest) = name.strip_prefix("folioswap-acc-") else { continue };
        let pid = rest.split('-').find(|part| part.parse::<u32>().is_ok());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            drop(fs::remove_dir_all(entry.path()));
        }
    }
}
