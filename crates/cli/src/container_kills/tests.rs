use super::*;

#[test]
fn a_limit_that_the_container_does_not_allow_is_named() {
    let limit = Limit { bytes: 256 << 20, source: "/sys/fs/cgroup/memory.max".into() };
    assert_eq!(warning(255 << 20, Some(&limit)), None);
    assert_eq!(warning(1 << 40, None), None);
    let text = warning(256 << 20, Some(&limit)).expect("a line");
    assert!(
        text.contains("256.0 MiB (/sys/fs/cgroup/memory.max)") && text.contains("give 224M or less"),
        "{text}"
    );
}

#[test]
fn the_kernel_keeps_a_part_of_every_limit() {
    for mib in [4, 16, 48, 49, 128, 1024] {
        let (limit, kept) = (mib << 20, reserve(mib << 20));
        assert!(kept > 0 && kept <= limit / 3, "{mib}");
    }
    assert_eq!(reserve(1 << 30), 128 << 20);
}
