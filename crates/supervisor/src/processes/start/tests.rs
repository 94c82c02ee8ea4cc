use super::*;
use std::os::unix::ffi::OsStrExt;

fn start(agent: Option<OwnedFd>, agent_name: Option<&str>) -> Start {
    Start {
        program: "/bin/true".into(),
        arguments: vec![],
        group: "folioswap-x".into(),
        agent,
        agent_name: agent_name.map(str::to_owned),
        boarding: Boarding::Preload,
        injector: None,
    }
}

#[test]
fn the_environment_names_the_group_once() {
    let start = start(None, None);
    let names = start.environment().filter(|entry| entry.as_bytes().starts_with(GROUP_VARIABLE.as_bytes()));
    assert_eq!(names.collect::<Vec<_>>(), ["FOLIOSWAP_GROUP=folioswap-x"]);
}

#[test]
fn the_agent_is_named_through_our_descriptor() {
    for (name, rest) in [(None, ""), (Some("libx-0123.so"), "/libx-0123.so")] {
        let agent: OwnedFd = std::fs::File::open("/").expect("opened").into();
        let path = format!("/proc/{}/fd/{}{rest}", std::process::id(), agent.as_raw_fd());
        let environment: Vec<_> = start(Some(agent), name).environment().collect();
        let preload = |entry: &&OsString| entry.as_bytes().starts_with(b"LD_PRELOAD=");
        let values: Vec<_> = environment.iter().filter(preload).collect();
        assert_eq!(values.len(), 1);
        let value = values[0].to_str().expect("text").strip_prefix("LD_PRELOAD=").expect("it is");
        assert_eq!(value.split(':').next(), Some(path.as_str()), "in front of the user's own");
        let sanitizer = |entry: &&OsString| entry.as_bytes().starts_with(b"ASAN_OPTIONS=");
        let values: Vec<_> = environment.iter().filter(sanitizer).collect();
        assert_eq!(values.len(), 1);
        assert!(values[0].to_str().expect("text").ends_with("verify_asan_link_order=0"));
    }
}
