use super::*;
use std::os::unix::ffi::OsStrExt;

#[test]
fn the_environment_names_the_group_once() {
    let start =
        Start { program: "/bin/true".into(), arguments: vec![], group: "folioswap-x".into(), agent: None };
    let names = start.environment().filter(|entry| entry.as_bytes().starts_with(GROUP_VARIABLE.as_bytes()));
    assert_eq!(names.collect::<Vec<_>>(), ["FOLIOSWAP_GROUP=folioswap-x"]);
}
