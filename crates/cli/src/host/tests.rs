use super::*;

#[test]
fn containers_are_recognised() {
    let by = |cgroups, file, variable| container_by(cgroups, |path| path == file, |name| name == variable);
    assert_eq!(by("0::/user.slice/session-1.scope", "", ""), Container::None);
    assert_eq!(by("0::/", "/.dockerenv", ""), Container::Docker);
    assert_eq!(by("4:memory:/docker/0123456789ab", "", ""), Container::Docker);
    assert_eq!(by("0::/", "/run/.containerenv", "container"), Container::Podman);
    assert_eq!(by("0::/machine.slice/libpod-0123.scope", "", ""), Container::Podman);
    assert_eq!(by("0::/", "/.dockerenv", "KUBERNETES_SERVICE_HOST"), Container::Kubernetes);
    assert_eq!(by("0::/kubepods/besteffort/pod0123", "", ""), Container::Kubernetes);
    assert_eq!(by("0::/lxc/name", "", ""), Container::Other);
    assert_eq!(by("0::/", "", "container"), Container::Other);
}

#[test]
fn a_namespace_of_processes_is_a_container() {
    let [(name, number), ..] = NAMESPACES;
    assert!(!is_other_namespace(Path::new("pid:[4026531836]"), name, number));
    assert!(is_other_namespace(Path::new("pid:[4026532201]"), name, number));
    assert!(!is_other_namespace(Path::new(""), name, number), "nothing is known without /proc");
    // The links have the form that is compared.
    for (name, _) in NAMESPACES {
        let link = fs::read_link(format!("/proc/self/ns/{name}")).expect("/proc");
        assert!(is_other_namespace(&link, name, 0), "{}", link.display());
    }
}

#[test]
fn root_gets_by_exec_what_may_be_had() {
    assert!(exec_gives("0\t0\t0\t0", true) && exec_gives("1000\t0\t0\t0", true));
    assert!(!exec_gives("0\t0\t0\t0", false) && !exec_gives("1000\t1000\t0\t0", true));
}

#[test]
fn choices_are_read() {
    assert_eq!(folioswap_peer::chosen("always [madvise] never"), Some("madvise"));
    assert!(memory_bytes() > 1 << 28);
}
