use super::*;
use std::os::fd::AsFd;

#[test]
fn kinds_are_told_apart() {
    let kind = |line: &str| parse(line.as_bytes()).map(|mapping| mapping.kind);
    assert_eq!(kind("7f1200000000-7f1200021000 rw-p 00000000 00:00 0 "), Some(MappingKind::Anonymous));
    assert_eq!(
        kind("55d0c000-55d0e000 rw-p 00000000 00:00 0                          [heap]"),
        Some(MappingKind::Anonymous)
    );
    assert_eq!(
        kind("7f12000-7f13000 rw-p 00000000 00:00 0     [anon:glibc: malloc]"),
        Some(MappingKind::Anonymous)
    );
    assert_eq!(kind("7ffd000-7ffe000 rw-p 00000000 00:00 0     [stack]"), Some(MappingKind::Other));
    assert_eq!(kind("7f12000-7f13000 r--p 00000000 00:00 0 "), Some(MappingKind::Other));
    assert_eq!(kind("7f12000-7f13000 rwxp 00000000 00:00 0 "), Some(MappingKind::Other));
    assert_eq!(kind("7f12000-7f13000 rw-s 00000000 00:01 17   /dev/zero (deleted)"), Some(MappingKind::File));
    assert_eq!(kind("7f12000-7f13000 rw-p 0001a000 fd:00 17   /lib/libc.so.6"), Some(MappingKind::File));
    assert_eq!(kind("nonsense"), None);
    assert_eq!(kind(""), None);
}

#[test]
fn an_allocators_reserve_is_managed_and_a_guard_is_not() {
    let mut filter = MappingFilter::new();
    let mut managed = |line: &str| filter.can_be_managed(parse(line.as_bytes()).unwrap());
    assert!(managed("7f1200000000-7f1200021000 rw-p 00000000 00:00 0 "));
    assert!(managed("7f1200021000-7f1204000000 ---p 00000000 00:00 0 "));
    assert!(!managed("7f1204000000-7f1204001000 ---p 00000000 00:00 0 "));
    assert!(!managed("7f1206000000-7f1206800000 ---p 00000000 00:00 0 "), "a stack to be");
    assert!(!managed("7f2000000000-7f2010000000 ---p 00000000 00:00 0 "), "more than an allocator's heap");
    assert!(!managed("7f3000000000-7f3000100000 r--p 00000000 fd:00 17   /lib/libc.so.6"));
    assert!(!managed("7f3000100000-7f3000300000 ---p 00000000 00:00 0 "), "a hole in a file's image");
}

#[test]
fn the_data_of_our_own_object_are_not_managed() {
    let own = image::range();
    let mut filter = MappingFilter::new();
    let mut managed =
        |start, end| filter.can_be_managed(Mapping { start, end, kind: MappingKind::Anonymous });
    assert!(managed(own.start - (1 << 20), own.start));
    assert!(!managed(own.start, own.start + (64 << 20)));
    assert!(!managed(own.end - 4096, own.end));
    assert!(managed(own.end, own.end + (64 << 20)));
}

#[test]
fn own_maps_hold_our_stack_variable() {
    let file = std::fs::File::open("/proc/self/maps").unwrap();
    let here = &raw const file as usize;
    let mut seen = 0;
    let mut last = 0;
    let mut buffer = [0; 8192];
    read(file.as_fd(), &mut buffer, |mapping| {
        assert!(mapping.start >= last && mapping.end > mapping.start);
        last = mapping.end;
        seen += usize::from((mapping.start..mapping.end).contains(&here));
    })
    .unwrap();
    assert_eq!(seen, 1);
}
