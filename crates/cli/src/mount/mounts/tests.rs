use super::*;

#[test]
fn the_topmost_mount_counts() {
    let text = b"22 1 0:20 / /mnt/a\\040b rw - fuse folioswap rw\n\
        23 1 0:21 / /mnt/c rw shared:1 - fuse.folioswap folioswap rw\n\
        24 23 0:22 / /mnt/c rw - tmpfs folioswap rw\n\
        25 1 0:23 / /mnt/d rw - fuse sshfs rw\n\
        26 1 0:24 / /mnt/e rw - fuse folioswap rw\n\
        27 26 0:25 / /mnt/e rw - fuse folioswap rw\n";
    let number = |path: &str| topmost(text, Path::new(path)).map(|ours| ours.number);
    assert_eq!(number("/mnt/a b"), Some(Some((0, 20))));
    assert_eq!(number("/mnt/c"), None, "something else lies over it");
    assert_eq!(number("/mnt/d"), None);
    assert_eq!(number("/mnt/e"), Some(Some((0, 25))), "a newer one of ours lies over it");
    assert_eq!(number("/mnt"), None);
}

#[test]
fn escapes_are_read() {
    assert_eq!(unescape(br"/a\040\134b\"), Path::new(r"/a \b\"));
    assert_eq!(unescape(br"/\0"), Path::new(r"/\0"));
}

#[test]
fn all_mounts_of_ours_are_listed_with_their_owners() {
    let table = b"24 1 0:22 / / rw - ext4 /dev/sda rw\n\
        30 24 0:40 / /mnt/a\\040b rw,nosuid - fuse folioswap rw,user_id=1000,group_id=1000\n\
        31 24 0:41 / /mnt/c rw - fuse other rw,user_id=0,group_id=0\n\
        32 24 0:42 / /mnt/d rw shared:7 - fuse folioswap rw,user_id=0,group_id=0,allow_other\n\
        33 24 0:43 / /mnt/e rw - fuse folioswap rw,user_id=\xff\n";
    let point = |directory: &str, owner| MountPoint { directory: directory.into(), owner };
    assert_eq!(listed(table), [point("/mnt/a b", 1000), point("/mnt/d", 0)]);
    assert_eq!(listed(b""), []);
}
