use crate::{
    course::{
        curve::{Away, Came, Gathered, Refaulted},
        record::{Record, Sample, SliceKind},
    },
    report::{
        Printed, Report,
        outcome::Outcome,
        totals::{Levels, Sums, Totals},
    },
};
use folioswap_group::{
    decisions::{Pressure, Scope, Way},
    moments::{LATENCY_BUCKETS, Moment},
    refaults::REFAULT_BUCKETS,
};
use std::time::{Duration, Instant};

/// The report of a run of 4 s; `came_back` pages came back from 8192 pages away.
fn report(came_back: f64) -> Report {
    let mut gathered = Gathered::default();
    let away = Away { out: 32 << 20, ..Away::default() };
    gathered.look(8192, &[], away, 64 << 20);
    gathered.look(0, &[Came { from: 0.0, to: 64.0, pages: came_back }], away, 64 << 20);
    let refaulted = Refaulted {
        distances: [0; REFAULT_BUCKETS],
        evictions: 8192,
        pages_in: came_back as u64,
        needed: gathered.needed,
    };
    let mut latency = [0; LATENCY_BUCKETS];
    (latency[10], latency[30]) = (98, 2);
    Report {
        outcome: Outcome::Exited(0),
        limit: 64 << 20,
        scope: Scope::Total,
        way: Way::Kernel,
        wall: Duration::from_secs(4),
        sums: Sums::new(),
        now: Levels::new(),
        totals: Totals::new(),
        devices: Vec::new(),
        devices_now: Vec::new(),
        unmanaged: Vec::new(),
        unmanaged_peak: 0,
        recorded: None,
        refaulted,
        latency,
        pressure: Pressure {
            some: [0, 1250, 300],
            full: [0, 50, 0],
            some_total_us: 900_000,
            full_total_us: 0,
        },
    }
}

#[test]
fn another_limit_is_named_where_pages_came_back() {
    let text = report(50_000.0).another_limit().expect("pages came back");
    assert!(text.contains("instead of 64.0 MiB") && text.contains("to run well"), "{text}");
    assert_eq!(report(0.0).another_limit(), None);
}

#[test]
fn latencies_are_the_ends_of_their_buckets() {
    let report = report(0.0);
    assert_eq!(report.latency_below(50).as_deref(), Some("33 us"));
    assert_eq!(report.latency_below(99).as_deref(), Some("33.6 ms"));
}

#[test]
fn each_form_is_its_own() {
    let report = report(50_000.0);
    assert_eq!(report.printed(Printed::Nothing), None);
    let summary = report.printed(Printed::Summary).expect("text");
    assert!(
        summary.starts_with("folioswap: CMD exited with status 0 after 4.00 s")
            && summary.lines().count() <= 10
    );
    assert!(report.printed(Printed::All).expect("text").contains("pswpout"));
    let advice = report.printed(Printed::Advice).expect("text");
    assert!(advice.contains("measured") && advice.contains("predicted"), "{advice}");
}

/// The page needs nothing from outside, and what the run is called cannot break out of it.
#[test]
fn the_page_stands_alone() {
    let mut record = Record::new(Instant::now());
    record.sample(Sample { at_ms: 0, charge: 1 << 20, limit: 64 << 20, ..Sample::default() });
    record.sample(Sample { at_ms: 900, charge: 9 << 20, pages_in: 100, ..Sample::default() });
    record.began(std::process::id());
    record.slice(SliceKind::Fault, 1, Moment { start_ns: 0, took_us: 5000, detail: 2 });
    let command = "sh -c '</script><script>alert(1)</script>'";
    let page = report(50_000.0).page(&record, command);
    assert!(!page.contains("<script>") && !page.contains("http"), "{page}");
    assert_eq!((page.matches("<script").count(), page.matches("</script>").count()), (1, 1));
    assert!(page.contains("prefers-color-scheme: dark"));
    assert!(page.matches("<svg").count() >= 7, "{}", page.matches("<svg").count());
    let data = page.split("id=\"folioswap-data\">").nth(1).and_then(|rest| rest.split("</script>").next());
    let data: serde_json::Value = serde_json::from_str(data.expect("data")).expect("JSON");
    assert_eq!(data["command"], command);
    assert_eq!(data["samples"].as_array().map(Vec::len), Some(2));
    assert!(data["statistics"]["counters"].is_object());
}

#[test]
fn a_run_without_anything_has_a_page_too() {
    let page = report(0.0).page(&Record::new(Instant::now()), "true");
    assert!(page.contains("this limit costs nothing") && page.ends_with("</html>\n"));
}
