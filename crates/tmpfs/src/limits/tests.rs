use super::*;

#[test]
fn a_place_is_given_once_and_comes_back() {
    let inodes = Inodes::new(2, Memory::default());
    let first = inodes.reserve().expect("one");
    let second = inodes.reserve().expect("two");
    assert!(inodes.reserve().is_none());
    drop(first);
    assert_eq!(inodes.used(), 1);
    assert!(inodes.reserve().is_some());
    drop(second);
    assert_eq!(inodes.used(), 0);
}
