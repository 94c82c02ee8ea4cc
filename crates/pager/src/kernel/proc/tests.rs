use super::*;

#[test]
fn statm_is_pages() {
    let size = parse_statm(b"1000 300 100 5 0 200 0\n").unwrap();
    assert_eq!(size, ProcessSize { writable: 200 * 4096, anonymous: 200 * 4096, shared: 100 * 4096 });
    assert_eq!(parse_statm(b""), None);
    assert_eq!(parse_statm(b"12 x 3"), None);
}

#[test]
fn minor_faults_are_found_after_any_name() {
    assert_eq!(minor_faults(b"12 (a) b) c) S 1 12 12 0 -1 4194304 4711 0 0 0 1 2"), Some(4711));
    assert_eq!(minor_faults(b"12 (cut) S 1"), None);
}

#[test]
fn a_cpu_is_found_after_any_name() {
    let rest = " S 1 1 1 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 1 0 15 2 3 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0";
    assert_eq!(last_cpu(format!("12 (a) 1 2 (b){rest}\n").as_bytes()), Some(1));
    assert_eq!(last_cpu(b"12 (cut) S 1 2"), None);
}

#[test]
fn a_parent_and_a_run_time_are_found() {
    assert_eq!(parent_number(b"12 (a) Z (b) S 7 12 12 0"), Some(7));
    assert_eq!(parent_number(b"12 (a) S 0 12 12 0"), None, "it is in no view of this /proc");
    let own = std::fs::read("/proc/self/stat").unwrap();
    assert_eq!(parent_number(&own), Some(std::os::unix::process::parent_id()));
    assert_eq!(run_ns(b"4711 12 3\n"), Some(4711));
    assert_eq!(run_ns(b""), None);
    let own = std::fs::read("/proc/thread-self/schedstat").unwrap();
    assert!(run_ns(&own).unwrap() > 0);
}

#[test]
fn fields_are_kilobytes() {
    let text = b"Name:\tx\nRssAnon:\t     123 kB\nRssShmem:\t       4 kB\n";
    assert_eq!(field_bytes(text, b"RssShmem:"), Some(4096));
    assert_eq!(field_bytes(text, b"RssAnon:"), Some(123 << 10));
    assert_eq!(field_bytes(text, b"Pss:"), None);
}
