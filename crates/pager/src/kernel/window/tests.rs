use super::*;

#[test]
fn places_follow_each_other_within_the_window() {
    let first = place(PAGE + 1) as usize;
    let second = place(PAGE) as usize;
    // Tests beside this one may take places too.
    assert!(second >= first + 2 * PAGE);
    assert!((START..END).contains(&first) && (START..END).contains(&second));
    assert!(first.is_multiple_of(PAGE) && second.is_multiple_of(PAGE));
}

#[test]
fn a_mapping_lies_at_its_place() {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    let at = place(BLOCK);
    // SAFETY: a new mapping.
    let start = unsafe { mmap_anonymous(at, BLOCK, ProtFlags::READ, MapFlags::PRIVATE) }.unwrap();
    assert_eq!(start, at);
    // SAFETY: the mapping is the test's own.
    unsafe { munmap(start, BLOCK).unwrap() };
}
