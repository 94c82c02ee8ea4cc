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
        dispatch: Err(Errno::INVAL),
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
            cap_sys_admin: false,
            no_new_privileges: false,
        },
        page_bytes: 4096,
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

fn allowed() -> Findings {
    Findings {
        release: "6.12.0".to_owned(),
        probe: Probe {
            route: Route::Syscall,
            syscall: Ok(()),
            device: Ok(()),
            user_mode: Ok(()),
            features: 0x1ffff,
            fork_event: Ok(()),
            dispatch: Ok(()),
        },
        container: Container::None,
        confinement: Confinement {
            seccomp_filter: false,
            cap_sys_ptrace: true,
            programs_have_sys_ptrace: true,
            root_has_sys_ptrace: true,
            user_namespace: false,
            cap_sys_admin: true,
            no_new_privileges: false,
        },
        page_bytes: 4096,
    }
}

fn examined() -> Examination {
    Examination { findings: allowed(), fuse: Fuse { device: Ok(()), helper: None }, file: Ok(1 << 30) }
}

#[test]
fn each_door_needs_its_own() {
    let all = examined();
    assert!(all.run_door().works && all.mount_door().works && all.library_door().works);

    let mut found = examined();
    found.findings.probe = Probe {
        route: Route::UserModeOnly,
        syscall: Err(Errno::PERM),
        device: Err(Errno::NOENT),
        fork_event: Err(Errno::PERM),
        dispatch: Err(Errno::INVAL),
        ..found.findings.probe
    };
    assert!(!found.run_door().works && found.mount_door().works);
    let library = found.library_door();
    // The gate inside a program needs no dispatch.
    let how = if cfg!(target_arch = "x86_64") { "by a gate" } else { "pinned" };
    assert!(library.works && library.notes[0].contains(how), "{library:?}");

    let mut found = examined();
    found.findings.confinement.cap_sys_admin = false;
    assert!(found.run_door().works);
    assert!(found.mount_door().problems[0].contains("fuse3"));
    found.fuse.helper = Some("/usr/bin/fusermount3".into());
    assert!(found.mount_door().works);
    found.findings.confinement.no_new_privileges = true;
    assert!(found.mount_door().problems[0].contains("no-new-privileges"));
    found.fuse.device = Err(Errno::NOENT);
    assert!(found.mount_door().problems[0].contains("modprobe fuse"));

    let mut found = examined();
    found.file =
        Err(CreateError::System { dir: "/var/tmp".into(), doing: "making a file", errno: Errno::ROFS });
    let run = found.run_door();
    assert!(run.works && run.notes[0].contains("compressed RAM alone"), "{run:?}");
    assert!(found.text().contains("/var/tmp"));
}

#[test]
fn advice_names_what_is_missing_now_and_nothing_else() {
    let denied = Probe {
        route: Route::UserModeOnly,
        syscall: Err(Errno::PERM),
        device: Err(Errno::NOENT),
        ..allowed().probe
    };
    let mut findings = Findings { container: Container::Podman, probe: denied.clone(), ..allowed() };
    let advice = findings.permission_advice();
    assert!(!advice.contains("--cap-add") && advice.contains("--device /dev/userfaultfd"), "{advice}");
    // The device is there, and its owner is root.
    findings.probe.device = Err(Errno::ACCESS);
    let advice = findings.permission_advice();
    assert!(!advice.contains("--device") && advice.contains("seccomp="), "{advice}");
    findings.probe = Probe {
        route: Route::Device,
        fork_event: Err(Errno::PERM),
        dispatch: Err(Errno::INVAL),
        ..allowed().probe
    };
    findings.confinement.cap_sys_ptrace = false;
    findings.confinement.root_has_sys_ptrace = false;
    let advice = findings.permission_advice();
    assert!(advice.contains("--cap-add") && !advice.contains("--device"), "{advice}");
    findings.container = Container::Kubernetes;
    let advice = findings.permission_advice();
    assert!(advice.contains("SYS_PTRACE") && !advice.contains("seccompProfile"), "{advice}");
    findings.confinement.cap_sys_ptrace = true;
    findings.probe = denied;
    let advice = findings.permission_advice();
    assert!(!advice.contains("SYS_PTRACE") && advice.contains("seccompProfile"), "{advice}");
}

#[test]
fn any_userfaultfd_is_enough_where_the_gate_follows_forks() {
    let mut findings = allowed();
    findings.confinement.cap_sys_ptrace = false;
    findings.probe = Probe {
        route: Route::Device,
        syscall: Err(Errno::PERM),
        fork_event: Err(Errno::PERM),
        ..findings.probe
    };
    assert!(findings.works() && findings.problems().is_empty());
    assert_eq!(findings.way(GateArgument::Auto), Some(Way::GatedForks));
    assert_eq!(findings.way(GateArgument::Never), None);
    assert!(findings.refusal_with(GateArgument::Never).contains("--gate never"));
    // Nothing at all is enough where the gate holds what calls use.
    findings.probe = Probe { route: Route::UserModeOnly, device: Err(Errno::ACCESS), ..findings.probe };
    assert_eq!(findings.way(GateArgument::Auto), Some(Way::GatedCalls));
    assert_eq!(findings.way(GateArgument::Always), Some(Way::GatedCalls));
    assert_eq!(findings.way(GateArgument::Never), None);
    findings.probe = Probe { route: Route::None, user_mode: Err(Errno::PERM), ..findings.probe };
    assert!(!findings.works());
    assert!(findings.permission_advice().contains("unprivileged_userfaultfd=1"));
    findings.container = Container::Docker;
    findings.confinement.root_has_sys_ptrace = false;
    let advice = findings.permission_advice();
    assert!(advice.contains("docker run --device /dev/userfaultfd"), "{advice}");
    // With the capability the kernel tells of forks, and the gate costs nothing because it is not
    // there.
    let findings = allowed();
    assert_eq!(findings.way(GateArgument::Auto), Some(Way::Kernel));
    assert_eq!(findings.way(GateArgument::Always), Some(Way::GatedForks));
}

#[test]
fn what_was_asked_with_a_capability_says_nothing_of_programs_without_it() {
    let mut findings = allowed();
    findings.confinement.programs_have_sys_ptrace = false;
    assert_eq!(findings.way(GateArgument::Auto), None);
    assert!(findings.refusal().contains("setcap -r"));
    assert!(findings.refusal_with(GateArgument::Always).contains("setcap -r"));
}

#[test]
fn pages_of_another_size_close_every_door() {
    let mut examined = examined();
    examined.findings.page_bytes = 16 << 10;
    assert!(!examined.findings.works());
    let refusal = examined.findings.refusal();
    assert!(refusal.contains("pages have 16 KiB") && refusal.contains("linux-image-arm64"), "{refusal}");
    for door in [examined.run_door(), examined.mount_door(), examined.library_door()] {
        assert!(!door.works && door.problems[0].contains("16 KiB"), "{door:?}");
    }
}

#[test]
fn each_way_says_what_it_lacks() {
    let mut findings = allowed();
    assert!(findings.ways().iter().all(|way| way.works && way.lacks.is_none()));
    findings.confinement.cap_sys_ptrace = false;
    findings.probe = Probe {
        route: Route::UserModeOnly,
        syscall: Err(Errno::PERM),
        device: Err(Errno::ACCESS),
        fork_event: Err(Errno::PERM),
        ..findings.probe
    };
    let [kernel, forks, calls] = findings.ways().try_into().expect("three");
    assert!(!kernel.works && kernel.lacks.expect("why").contains("CAP_SYS_PTRACE"));
    assert!(!forks.works && forks.lacks.expect("why").contains("/dev/userfaultfd"));
    assert!(calls.works && calls.way == "gated-calls");
    findings.probe = Probe { route: Route::None, user_mode: Err(Errno::PERM), ..findings.probe };
    let lacks = findings.ways().pop().and_then(|calls| calls.lacks).expect("why");
    assert!(lacks.contains("seccomp"), "{lacks}");
}
