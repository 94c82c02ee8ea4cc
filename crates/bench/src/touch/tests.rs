use super::*;

#[test]
fn changes_are_three_phases_that_are_timed_by_themselves() {
    let options = Options {
        size: 1 << 20,
        kind: Kind::Two,
        phases: ["fill", "changes", "rewrite-down", "verify"].map(str::to_owned).into(),
        touches: 100,
        ..Options::default()
    };
    let mut timings = Vec::new();
    touch(&options, 0, |timing| timings.push(timing)).unwrap();
    let names: Vec<_> = timings.iter().map(|timing| timing.phase.clone()).collect();
    assert_eq!(names, steps(&options.phases));
    assert_eq!(names[1..4], ["changes: in order", "changes: at random", "changes: in order"]);
    for timing in &timings {
        assert!(timing.p50_ns > 0, "{timing:?}");
        assert!(timing.p50_ns <= timing.p99_ns && timing.p99_ns <= timing.p999_ns, "{timing:?}");
        let resident = timing.resident.unwrap();
        assert!(resident.bytes >= options.size && resident.huge_bytes <= resident.bytes, "{timing:?}");
    }
    for (name, is) in [("changes", true), ("changes-down", false), ("fill-down", true), (AT_RANDOM, false)] {
        assert_eq!(is_phase(name), is, "{name}");
    }
}
