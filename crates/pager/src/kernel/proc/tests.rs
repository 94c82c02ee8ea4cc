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
fn an_ended_first_thread_is_told_from_one_that_goes_on() {
    let text = |state: &str, status: u32| {
        let rest = "1 1 1 0 -1 64 1 0 0 0 1 2 0 0 20 0 3 0 15 2 3 4 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0";
        format!("12 (a) Z (b) {state} {rest} {status}\n")
    };
    let of = |state, status| FirstThread::of(text(state, status).as_bytes());
    assert_eq!(of("S", 0), Some(FirstThread::GoesOn));
    assert_eq!(of("Z", 7 << 8), Some(FirstThread::Ended { status: 7 }));
    assert_eq!(FirstThread::of(b"12 (cut) Z 1 2"), None);
    assert_eq!(thread_flags(text("S", 0).as_bytes()), Some(64));
    assert_eq!(thread_count(text("S", 0).as_bytes()), Some(3));
}

#[test]
fn the_first_thread_of_this_process_goes_on() {
    let text = std::fs::read("/proc/self/stat").unwrap();
    assert_eq!(FirstThread::of(&text), Some(FirstThread::GoesOn));
}

#[test]
fn fields_are_kilobytes() {
    let text = b"Name:\tx\nRssAnon:\t     123 kB\nRssShmem:\t       4 kB\n";
    assert_eq!(field_bytes(text, b"RssShmem:"), Some(4096));
    assert_eq!(field_bytes(text, b"RssAnon:"), Some(123 << 10));
    assert_eq!(field_bytes(text, b"Pss:"), None);
}
