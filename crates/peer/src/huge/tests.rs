use super::*;

#[test]
fn settings_are_read() {
    assert_eq!(chosen("always [madvise] never\n"), Some("madvise"));
    assert_eq!(chosen("nothing"), None);
    assert_eq!(kib_of(Path::new("/sys/x/hugepages-2048kB")), Some(2048));
    assert_eq!(kib_of_parent(Path::new("/sys/x/hugepages-64kB/enabled")), Some(64));
    assert_eq!(kib_of_parent(Path::new("/sys/kernel/mm/transparent_hugepage/enabled")), None);
    assert!(
        FolioSizes::All.includes(16)
            && FolioSizes::Only2M.includes(2048)
            && !FolioSizes::Only64K.includes(32)
    );
}
