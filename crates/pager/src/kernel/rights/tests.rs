use super::*;
use std::fs;

fn field(name: &str) -> String {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned()
}

/// In threads of their own: no capability that is given up comes back.
#[test]
fn what_is_given_up_is_gone() {
    std::thread::spawn(|| {
        see_no_frames();
        assert!(!capabilities(None).unwrap().permitted.contains(CapabilitySet::SYS_ADMIN));
        assert_eq!(field("NoNewPrivs:"), "0");
        give_up();
        for set in ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"] {
            assert_eq!(field(set), "0000000000000000", "{set}");
        }
        assert_eq!(field("NoNewPrivs:"), "1");
        let effective = CapabilitySet::KILL;
        let sets = CapabilitySets { effective, permitted: effective, inheritable: CapabilitySet::empty() };
        assert!(set_capabilities(None, sets).is_err());
    })
    .join()
    .unwrap();
}
