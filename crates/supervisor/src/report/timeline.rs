//! `--timeline`: the record of a run as Chrome trace events, which Perfetto and chrome://tracing
//! open.
//!
//! Times are microseconds since the start of the run. Counters are those of the supervisor's
//! process; a fault is a slice of the thread that waited, a batch one of its process's evictor, and
//! the life of an image one of a thread that stands for it.

use crate::course::record::{Life, Record, Sample, Slice, SliceKind};
use serde_json::{Value, json};

/// The thread that stands for the life of an image.
const LIFE_THREAD: u32 = 1;
/// The thread that stands for the evictor, whose own number nobody needs.
const EVICTOR_THREAD: u32 = 2;

/// The events, as an object of the trace-event format.
pub fn trace(record: &Record, title: &str, supervisor: u32) -> Value {
    let mut events = vec![process_name(supervisor, "folioswap: the group")];
    let end_us = record.samples.last().map_or(0, |sample| sample.at_ms * 1000);
    for life in &record.lives {
        events.push(process_name(life.pid, &life.name));
        events.push(thread_name(life.pid, LIFE_THREAD, "life"));
        events.push(thread_name(life.pid, EVICTOR_THREAD, "evictor"));
        events.extend(life_events(life, end_us));
    }
    events.extend(record.samples.windows(2).flat_map(|two| counters(supervisor, &two[0], &two[1])));
    events.extend(record.slices.iter().map(slice));
    json!({
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": { "command": title, "events_not_kept": record.not_kept },
    })
}

fn process_name(pid: u32, name: &str) -> Value {
    json!({ "ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0, "args": { "name": name } })
}

fn thread_name(pid: u32, thread: u32, name: &str) -> Value {
    json!({ "ph": "M", "name": "thread_name", "pid": pid, "tid": thread, "ts": 0, "args": { "name": name } })
}

fn life_events(life: &Life, end_us: u64) -> Vec<Value> {
    let began = life.began_ms * 1000;
    let ended = life.ended_ms.map_or(end_us, |ended| ended * 1000).max(began);
    vec![
        json!({
            "ph": "X", "cat": "process", "name": life.name, "pid": life.pid, "tid": LIFE_THREAD,
            "ts": began, "dur": ended - began, "args": { "parent": life.parent },
        }),
        json!({
            "ph": "i", "s": "p", "cat": "process", "name": "begins", "pid": life.parent, "tid": 0,
            "ts": began, "args": { "child": life.pid, "name": life.name },
        }),
    ]
}

/// Counters at the later of two samples; rates are those since the earlier one.
fn counters(supervisor: u32, before: &Sample, sample: &Sample) -> Vec<Value> {
    let mib = |bytes: u64| (bytes as f64 / f64::from(1 << 20) * 100.0).round() / 100.0;
    let seconds = (sample.at_ms - before.at_ms).max(1) as f64 / 1000.0;
    let rate = |now: u64, then: u64| (now.saturating_sub(then) as f64 / seconds).round();
    let percent = |now: u64, then: u64| (now.saturating_sub(then) as f64 / seconds / 1e7).round();
    let counter = |name: &str, values: Value| json!({ "ph": "C", "name": name, "pid": supervisor, "tid": 0, "ts": sample.at_ms * 1000, "args": values });
    vec![
        counter("charge (MiB)", json!({ "charge": mib(sample.charge), "limit": mib(sample.limit) })),
        counter("swapped out (MiB)", json!({ "swapped": mib(sample.swapped) })),
        counter("compressed store (MiB)", json!({ "store": mib(sample.store) })),
        counter(
            "pages/s",
            json!({
                "out": rate(sample.pages_out, before.pages_out),
                "in": rate(sample.pages_in, before.pages_in),
            }),
        ),
        counter("waiting (% of a thread)", json!({ "waiting": percent(sample.waited_ns, before.waited_ns) })),
        counter("pagers (% of a CPU)", json!({ "pagers": percent(sample.pager_ns, before.pager_ns) })),
    ]
}

fn slice(slice: &Slice) -> Value {
    let (name, thread, arguments) = match slice.kind {
        SliceKind::Fault => ("fault", slice.detail, json!({})),
        SliceKind::Batch => ("batch", EVICTOR_THREAD, json!({ "pages": slice.detail })),
        SliceKind::Swapoff => ("swapoff", 0, json!({ "device": slice.detail })),
    };
    json!({
        "ph": "X", "cat": "swap", "name": name, "pid": slice.pid, "tid": thread,
        "ts": slice.at_us, "dur": slice.took_us, "args": arguments,
    })
}

#[cfg(test)]
mod tests;
