use super::*;

#[test]
fn units_are_binary_and_nonsense_is_refused() {
    for (text, bytes) in [("512M", 512 << 20), ("1.5G", 3 << 29), ("1GiB", 1 << 30), (" 7 ", 7)] {
        assert_eq!(text.into_bytes().ok(), Some(bytes), "{text}");
    }
    for text in ["", "M", "-1", "12X", "99999999999999999999"] {
        assert!(matches!(text.into_bytes(), Err(Error::Size { .. })), "{text}");
    }
    assert!((-1).into_bytes().is_err());
    assert_eq!((64 << 20).into_bytes().ok(), Some(64 << 20));
}

#[test]
fn sizes_are_shown_in_the_unit_that_fits() {
    for (bytes, text) in [(17, "17 B"), (4096, "4.0 KiB"), (512 << 20, "512.0 MiB"), (3 << 29, "1.5 GiB")] {
        assert_eq!(show(bytes), text);
    }
}

#[test]
fn durations_have_three_digits_and_the_unit_that_fits() {
    for (ns, text) in [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_000, "1.00 us"),
        (12_345, "12.3 us"),
        (114_688, "115 us"),
        (999_600, "1.00 ms"),
        (1_250_000, "1.25 ms"),
        (61_000_000_000, "61.0 s"),
        (5_000_000_000_000, "5000 s"),
    ] {
        assert_eq!(show_duration(Duration::from_nanos(ns)), text);
    }
}
