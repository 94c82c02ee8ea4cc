use super::*;
use folioswap_supervisor::swap_option;
use std::ffi::OsStr;

fn options(values: &[&str]) -> Vec<SwapOption> {
    values.iter().map(|value| swap_option::parse(OsStr::new(value)).expect(value)).collect()
}

#[test]
fn different_kinds_in_turn_are_warned_of() {
    assert_eq!(turns(&options(&["zram", "file:/var/tmp,prio=0"])), None);
    assert_eq!(turns(&options(&["file:/tmp", "file:/var/tmp"])), None);
    let said = turns(&options(&["file:/var/tmp", "zram"])).expect("a warning");
    assert!(said.contains("zram and file have no priority"), "{said}");
    assert!(said.contains("write --swap zram,prio=1 --swap file:/var/tmp,prio=0"), "{said}");
    assert_eq!(said.lines().count(), 1);
}
