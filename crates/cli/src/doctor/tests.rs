use super::*;

#[test]
fn every_refusal_says_what_mends_it() {
    let denied = Probe {
        route: Route::UserModeOnly,
        syscall: Err(Errno::PERM),
        device: Err(Errno::ACCESS),
        user_mode: Ok(()),
        features: 0x1ffff,
        fork_event: Err(Errno::PERM),
    };
    let mut findings = Findings {
        release: "6.12.0".to_owned(),
        probe: denied.clone(),
        container: Container::None,
        confinement: Confinement {
            seccomp_filter: false,
            cap_sys_ptrace: false,
            programs_have_sys_ptrace: true,
            root_has_sys_ptrace: false,
            user_namespace: false,
        },
    };
    assert!(findings.refusal().contains("setpriv"));
    findings.container = Container::Docker;
    assert!(findings.refusal().contains("docker run --cap-add SYS_PTRACE --device /dev/userfaultfd"));
    findings.container = Container::Kubernetes;
    assert!(findings.refusal().contains("seccompProfile"));
    findings.confinement.root_has_sys_ptrace = true;
    assert!(findings.refusal().contains("--user 0"));
    findings.probe = Probe { route: Route::Device, device: Ok(()), ..denied.clone() };
    assert!(findings.refusal().contains("fork event"));
    findings.probe =
        Probe { route: Route::Syscall, syscall: Ok(()), fork_event: Ok(()), features: 0xffff, ..denied };
    findings.release = "6.1.0-28-amd64".to_owned();
    assert!(findings.refusal().contains("bookworm-backports"));
    findings.probe.features = 0x1ffff;
    assert!(findings.works() && findings.problems().is_empty());
    findings.confinement.programs_have_sys_ptrace = false;
    assert!(!findings.works() && findings.refusal().contains("setcap -r"));
}
