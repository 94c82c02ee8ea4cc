use super::*;
use crate::{
    inode::Content,
    limits::{Inodes, Memory},
};
use fuser::FileType;

#[test]
fn an_inode_lives_until_it_is_forgotten_as_often_as_it_was_told() {
    let (table, inodes) = (InodeTable::new(), Inodes::new(10, Memory::default()));
    let reservation = inodes.reserve().expect("room");
    let inode = Arc::new(Inode::new(7, Content::Node(FileType::Socket), 0, (0, 0), 0, reservation));
    for _ in 0..3 {
        table.remember(&inode);
    }
    drop(inode);
    let forget = |lookups| {
        let mut last = false;
        table.forget(7, lookups, || last = true);
        last
    };
    assert!(!forget(2));
    assert_eq!((table.len(), inodes.used()), (1, 1));
    assert!(forget(1), "it was the last one");
    assert_eq!((table.len(), inodes.used()), (0, 0));
    assert!(!forget(1), "forgetting an unknown inode does nothing");
}

#[test]
fn threads_that_look_up_and_forget_leave_nothing() {
    let (table, inodes) = (InodeTable::new(), Inodes::new(10, Memory::default()));
    let reservation = inodes.reserve().expect("room");
    // A name holds the inode.
    let named = Arc::new(Inode::new(7, Content::Node(FileType::Socket), 0, (0, 0), 0, reservation));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    table.remember(&named);
                    assert!(table.get(7).is_some(), "whoever was told of it finds it");
                    table.forget(7, 1, || {});
                }
            });
        }
    });
    assert_eq!(table.len(), 0);
    drop(named);
    assert_eq!(inodes.used(), 0);
}
