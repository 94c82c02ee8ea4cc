//! What a run may leave behind: files, mounts, shared memory and sockets that carry our name.

use std::collections::BTreeSet;
use std::fs;

const PLACES: &[&str] = &["/tmp", "/var/tmp", "/dev/shm", "/run", "/run/user/0"];

/// The traces that are there now.
pub fn present() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for place in PLACES {
        for entry in fs::read_dir(place).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            // Directories of this crate itself start so.
            if name.contains("folioswap") && !name.starts_with("folioswap-acc") {
                found.insert(format!("{place}/{name}"));
            }
        }
    }
    for (file, what) in [("/proc/self/mounts", "mount"), ("/proc/net/unix", "socket")] {
        for line in
            fs::read_to_string(file).unwrap_or_default().lines().filter(|line| line.contains("folioswap"))
        {
            // The last column of /proc/net/unix is the name; what stands before it changes by itself.
            let name = if what == "socket" { line.rsplit(' ').next().unwrap_or(line) } else { line };
            if !name.contains("folioswap-acc") {
                found.insert(format!("{what} {name}"));
            }
        }
    }
    let ipc = fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    found.extend(ipc.lines().skip(1).map(|line| {
        let id = line.split_whitespace().nth(1).unwrap_or("?");
        format!("System V shared memory {id}")
    }));
    found
}
