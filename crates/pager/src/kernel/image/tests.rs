use super::*;

/// Code, constants and data of this object lie in it, a stack and the C library do not.
#[test]
fn it_holds_what_belongs_to_the_object() {
    static DATA: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);
    let local = 0u8;
    let range = range();
    let is_in = |address: usize| (range.start..range.end).contains(&address);
    assert!(range.start.is_multiple_of(PAGE) && range.end.is_multiple_of(PAGE));
    assert!(is_in(it_holds_what_belongs_to_the_object as *const () as usize));
    assert!(is_in("constant".as_ptr() as usize) && is_in(&raw const DATA as usize));
    assert!(!is_in(&raw const local as usize));
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let start = format!("{:x}-", range.start);
    assert!(maps.lines().any(|line| line.starts_with(&start)), "{start}\n{maps}");
}

#[test]
fn its_text_is_what_the_kernel_maps_for_execution() {
    let text = text();
    let is_in = |address: usize| (text.start..text.end).contains(&address);
    assert!(is_in(its_text_is_what_the_kernel_maps_for_execution as *const () as usize));
    assert!(!is_in("constant".as_ptr() as usize));
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = format!("{:x}-{:x} r-xp", text.start, text.end);
    assert!(maps.lines().any(|other| other.starts_with(&line)), "{line}\n{maps}");
}
