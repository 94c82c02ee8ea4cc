use super::*;

fn options() -> Options {
    Options { hot: 1 << 20, scan: 4 << 20, kind: Kind::Two, touches_per_page: 3 }
}

#[test]
fn without_a_limit_the_hot_set_stays() {
    let mut timings = Vec::new();
    hot_set(&options(), None, |timing| timings.push(timing)).unwrap();
    let names: Vec<_> = timings.iter().map(|timing| timing.phase.as_str()).collect();
    assert_eq!(names, SCANS);
    for timing in timings {
        let hot = timing.hot.unwrap();
        assert_eq!((hot.touches, hot.from_store), (3 * 1024, 0), "{timing:?}");
        assert_eq!(hot.kept(), Some(1.0));
        assert!(timing.p50_ns > 0 && timing.resident.unwrap().bytes >= 1 << 20, "{timing:?}");
    }
}

#[test]
fn what_is_unclear_counts_as_not_kept() {
    let mut hot = HotTouches::default();
    assert_eq!(hot.kept(), None);
    [TouchOutcome::NoFault, TouchOutcome::Fault, TouchOutcome::Store, TouchOutcome::Unclear]
        .into_iter()
        .for_each(|outcome| hot.count(outcome));
    assert_eq!(hot, HotTouches { touches: 4, faults: 3, from_store: 2, unclear: 1 });
    assert_eq!(hot.kept(), Some(0.5));
}
