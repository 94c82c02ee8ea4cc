use super::*;

#[test]
fn a_limit_is_never_shared_out_twice() {
    for processors in [1, 2, 4, 64] {
        for memory in [MEMORY_MIN, 64 << 20, 1 << 30, 1 << 40] {
            let shares = shares(memory, processors);
            let fixed = shares.threads as u64 * THREAD_MEMORY + FIXED_MEMORY;
            assert_eq!(shares.contents + shares.page_cache + fixed, memory);
            assert!(shares.contents >= memory / 4, "{memory}: {shares:?}");
            assert!(shares.threads >= 4);
        }
    }
}

#[test]
fn a_file_system_is_known_by_its_number() {
    // The root of a chroot need not be a mount that is seen from within.
    let proc = rustix::fs::stat("/proc").expect("there is /proc");
    assert!(is_mounted((rustix::fs::major(proc.st_dev), rustix::fs::minor(proc.st_dev))));
    assert!(!is_mounted((u32::MAX, 0)));
}
