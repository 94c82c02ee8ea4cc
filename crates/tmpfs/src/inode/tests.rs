use super::*;
use crate::limits::{Inodes, Memory};

fn fifo(permissions: u16) -> Inode {
    let reservation = Inodes::new(8, Memory::default()).reserve().expect("room");
    Inode::new(1, Content::Node(FileType::NamedPipe), permissions, (1, 2), 0, reservation)
}

#[test]
fn privileges_go_as_the_kernel_drops_them() {
    for (before, after) in
        [(0o4755, 0o755), (0o6755, 0o755), (0o2744, 0o2744), (0o2754, 0o754), (0o1777, 0o1777)]
    {
        let inode = fifo(before);
        let changed = inode.state().drop_privileges(FileType::RegularFile) == Privileges::Dropped;
        assert_eq!((inode.state().permissions, changed), (after, before != after), "{before:o}");
    }
    let inode = fifo(0o6755);
    let kept = inode.state().drop_privileges(FileType::Directory);
    assert_eq!(kept, Privileges::None, "a directory keeps its bits");
}

#[test]
fn access_time_is_relative() {
    let inode = fifo(0o644);
    let mut state = inode.state();
    let start = SystemTime::now();
    (state.mtime, state.ctime, state.atime) = (start, start, start + Duration::from_secs(5));
    let before = state.atime;
    state.touch_access();
    assert_eq!(state.atime, before, "it is newer than the last change");
    state.mtime = before + Duration::from_secs(1);
    state.touch_access();
    assert!(state.atime >= start && state.atime != before, "it was older than the last change");
    (state.mtime, state.ctime) = (SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH);
    state.atime = start - 2 * ATIME_AGE_MAX;
    state.touch_access();
    assert!(state.atime >= start, "it was older than a day");
}
