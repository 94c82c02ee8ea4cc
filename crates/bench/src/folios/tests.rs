use super::*;

#[test]
fn statistics_are_read_by_size_and_single_pages_never_fall_back() {
    let document = serde_json::json!({ "sizes": {
        "64kB": { "swpout": 90, "swpout_fallback": 6, "swpin": 100, "swpin_fallback": 4, "swpin_fallback_charge": 9 },
        "4kB": { "swpout": 7, "swpout_fallback": 50, "swpin": 8 },
    } });
    let counts = of_statistics(&document);
    let four = FolioCounts { kib: 4, swpout: 7, swpout_fallback: 50, swpin: 8, swpin_fallback: 0 };
    assert_eq!(counts[0], four);
    assert_eq!((counts[1].kib, counts[1].asked()), (64, 200));
    assert_eq!(fallback(&counts), Some(0.05));
    assert_eq!(fallback(&counts[..1]), None);
    assert_eq!(of_statistics(&serde_json::json!({})), []);
}

#[test]
fn a_run_is_the_difference_of_two_readings() {
    let before = FolioCounts { kib: 64, swpout: 10, swpout_fallback: 1, swpin: 5, swpin_fallback: 2 };
    let after = FolioCounts { kib: 64, swpout: 15, swpout_fallback: 1, swpin: 9, swpin_fallback: 3 };
    let run = after.since(before);
    assert_eq!(run, FolioCounts { kib: 64, swpout: 5, swpout_fallback: 0, swpin: 4, swpin_fallback: 1 });
    let now = kernel();
    assert!(now.is_sorted_by_key(|counts| counts.kib));
    assert_eq!(kernel_since(&now).len(), now.len());
}
