use super::*;
use folioswap_group::moments::Moment;
use std::time::Instant;

/// Checks an object against the trace-event format (JSON Object Format), as far as it is used here.
fn check(trace: &Value) {
    assert_eq!(trace["displayTimeUnit"], "ms");
    for event in trace["traceEvents"].as_array().expect("an array") {
        let is_number = |key: &str| event[key].as_u64().is_some();
        assert!(event["name"].as_str().is_some_and(|name| !name.is_empty()), "{event}");
        assert!(is_number("pid") && is_number("tid") && is_number("ts"), "{event}");
        assert!(event["args"].is_object(), "{event}");
        match event["ph"].as_str().expect("a phase") {
            "X" => assert!(is_number("dur") && event["cat"].is_string(), "{event}"),
            "C" => assert!(
                event["args"].as_object().expect("an object").values().all(Value::is_number),
                "{event}"
            ),
            "M" => {
                assert!(
                    ["process_name", "thread_name"].contains(&event["name"].as_str().expect("a name")),
                    "{event}"
                );
                assert!(event["args"]["name"].is_string(), "{event}");
            }
            "i" => assert!(["g", "p", "t"].contains(&event["s"].as_str().expect("a scope")), "{event}"),
            other => panic!("phase {other}: {event}"),
        }
    }
}

#[test]
fn the_trace_is_one_of_the_format() {
    let mut record = Record::new(Instant::now());
    for at_ms in [0, 20, 40] {
        record.sample(Sample {
            at_ms,
            charge: at_ms << 20,
            pages_in: at_ms,
            waited_ns: at_ms,
            ..Sample::default()
        });
    }
    record.began(std::process::id());
    record.ended(std::process::id());
    record.slice(SliceKind::Fault, 7, Moment { start_ns: 0, took_us: 1200, detail: 8 });
    record.slice(SliceKind::Batch, 7, Moment { start_ns: 0, took_us: 2200, detail: 512 });
    record.swapoff(1, Instant::now());
    let trace = trace(&record, "a \"command\"", 3);
    check(&trace);
    let names: Vec<&str> = trace["traceEvents"]
        .as_array()
        .expect("an array")
        .iter()
        .filter_map(|event| event["name"].as_str())
        .collect();
    for name in ["fault", "batch", "swapoff", "begins", "charge (MiB)", "pages/s"] {
        assert!(names.contains(&name), "no {name} in {names:?}");
    }
}

#[test]
fn an_empty_record_is_a_trace_too() {
    let trace = trace(&Record::new(Instant::now()), "", 1);
    check(&trace);
    assert_eq!(trace["traceEvents"].as_array().map(Vec::len), Some(1));
}
