//! Trace files, binary and as text: what `lab import`, `export`, `fit` and `replay` read. A file is
//! refused, or is a trace that has the same bytes again, goes through its text unchanged, and is
//! prepared for a replay; the two readers of such files agree, in their errors too.
#![no_main]

use folioswap_lab::replay::{Prepared, Retention};
use folioswap_lab::text;
use folioswap_lab::traces::Trace;
use folioswap_trace::{Details, Event, RECORD_BYTES, Record};
use libfuzzer_sys::fuzz_target;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Forks times allocations of a trace that is prepared: each fork copies 2 KiB for each cluster.
const COPIES_MAX: usize = 1 << 12;

thread_local! {
    static FILE: File = memfd_create("trace", MemfdFlags::CLOEXEC).expect("a memfd").into();
}

/// A file with these bytes.
fn file(bytes: &[u8]) -> PathBuf {
    FILE.with(|file| {
        ftruncate(file, 0).and_then(|()| ftruncate(file, bytes.len() as u64)).expect("a length");
        file.write_all_at(bytes, 0).expect("room");
        format!("/proc/self/fd/{}", file.as_raw_fd()).into()
    })
}

/// The bytes of a trace's file.
fn encoded(trace: &Trace) -> Vec<u8> {
    let mut bytes = trace.header.encode_as(trace.layout()).to_vec();
    for (index, record) in trace.records.iter().enumerate() {
        bytes.extend(record.encode().expect("a record that was read"));
        bytes.extend(trace.details.get(index).iter().flat_map(|details| details.encode()));
    }
    bytes
}

/// The trace without details that say nothing.
fn plainest(mut trace: Trace) -> Trace {
    if trace.details.iter().all(|details| *details == Details::default()) {
        trace.details.clear();
    }
    trace
}

fn through_text(trace: &Trace) {
    let mut lines = Vec::new();
    text::write(trace, &mut lines).expect("a vector takes all");
    let back = text::read(&lines[..]).expect("what was written is read");
    assert!(back == *trace, "{}", String::from_utf8_lossy(&lines));
}

fn is_sorted(trace: &Trace) -> bool {
    trace.records.is_sorted_by_key(|record| record.tick)
}

fn prepared(trace: &Trace, path: &Path) {
    let count =
        |wanted: fn(&Event) -> bool| trace.records.iter().filter(|record| wanted(&record.event)).count();
    let forks = count(|event| matches!(event, Event::Fork { .. }));
    let allocations = count(|event| matches!(event, Event::Alloc { .. }));
    if forks * allocations > COPIES_MAX {
        return;
    }
    for retention in [Retention::AsRecorded, Retention::Never] {
        let whole = Prepared::new(trace, retention).expect("few clusters");
        let streamed = Prepared::read(path, retention).expect("the file is a trace");
        assert_eq!(format!("{whole:?}"), format!("{streamed:?}"));
        let slots = |record: &Record| match record.event {
            Event::Alloc { order, .. } => 1 << order,
            Event::Reuse { slots, .. } => u64::from(slots),
            _ => 0,
        };
        assert!(whole.slots_peak <= trace.records.iter().map(slots).sum());
        assert!(whole.orders() <= 10);
        let length = whole.len();
        assert!(whole.until_the_peak().len() <= length);
        assert!(Prepared::timed(trace, retention).expect("few clusters").len() == length);
    }
}

fn check(trace: &Trace) {
    let groups = trace.details.first().map_or(0, |details| details.group);
    let of_group = trace.of_group(groups);
    assert!(of_group.records.len() <= trace.records.len());
    assert!(of_group.details.is_empty() || of_group.details.len() == of_group.records.len());
    through_text(trace);
}

fn binary(data: &[u8]) {
    let path = file(data);
    match Trace::parse(&path, data) {
        Ok(trace) => {
            assert!(encoded(&trace) == data);
            prepared(&trace, &path);
            // A text has no time before its beginning, and its records without members are sorted.
            let has_members = trace.records.iter().any(|record| {
                matches!(record.event, Event::Member { .. } | Event::End { .. } | Event::Fork { .. })
            });
            if has_members || is_sorted(&trace) {
                check(&plainest(trace));
            }
        }
        Err(error) => {
            let streamed = Prepared::read(&path, Retention::AsRecorded).expect_err("the file is no trace");
            assert_eq!(streamed.to_string(), error.to_string());
        }
    }
    for chunk in data.as_chunks::<RECORD_BYTES>().0 {
        if let Ok(record) = Record::decode(chunk) {
            assert_eq!(record.encode().as_ref(), Ok(chunk));
        }
        if let Ok(details) = Details::decode(chunk) {
            assert_eq!(details.encode(), *chunk);
        }
    }
}

fn lines(data: &[u8]) {
    // A line of 65535 slots is at most 129 records.
    let Ok(trace) = text::read(data) else {
        return;
    };
    assert!(trace.records.len() <= 129 * data.len() / 8);
    let bytes = encoded(&trace);
    let path = file(&bytes);
    assert!(Trace::parse(&path, &bytes).expect("what is imported is a trace") == trace);
    prepared(&trace, &path);
    check(&trace);
}

fuzz_target!(|data: &[u8]| {
    binary(data);
    lines(data);
});
