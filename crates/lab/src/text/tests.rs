use super::*;
use crate::build::{BuildParameters, Scale, Sizes};
use crate::generate;
use folioswap_slots::DeviceFlags;

fn error(text: &str) -> String {
    read(text.as_bytes()).unwrap_err().to_string()
}

#[test]
fn a_trace_written_as_text_is_read_back_the_same() {
    let parameters = BuildParameters { tasks: 8, ..BuildParameters::published(Sizes::All).scaled(Scale(32)) };
    for flags in [DeviceFlags::SYNCHRONOUS, DeviceFlags::NONE] {
        let trace = generate::in_memory(&parameters, flags, 5).unwrap();
        assert!(trace.details.iter().any(|details| details.cause == Cause::SwapIn));
        let mut text = Vec::new();
        write(&trace, &mut text).unwrap();
        // Not by assert_eq: a failure would print both traces.
        assert!(read(&text[..]).unwrap() == trace, "the text loses something");
    }
}

#[test]
fn lines_out_of_order_are_sorted_and_time_begins_at_the_first() {
    let text = "# folioswap-trace tick_ns=1\n\
        # a comment\n\n\
        500 1 free 16 2:1040 group=9 cause=swap-in mask=c folio=77\n\
        300 3 alloc 4 2:1040\n";
    let trace = read(text.as_bytes()).unwrap();
    assert_eq!(trace.header, Header { tick_ns: 1, cpus: 4 });
    let entry = 2 << 51 | 1040;
    assert_eq!(trace.records[0], Record { tick: 0, event: Event::Alloc { cpu: 3, order: 4, entry } });
    assert_eq!(trace.records[1], Record { tick: 200, event: Event::Free { cpu: 1, slots: 16, entry } });
    let details = Details { group: 9, mask: 0xc, folio: 77, cause: Cause::SwapIn };
    assert_eq!(trace.details, [Details::default(), details]);
}

/// The records of a member that has ended are in the file before earlier ones of the others.
#[test]
fn a_text_with_members_keeps_its_order() {
    let record = |tick, event| Record { tick, event };
    let alloc = |entry| Event::Alloc { cpu: 0, order: 0, entry };
    let records = vec![
        record(5, Event::Member { member: 1 }),
        record(5, alloc(1)),
        record(9, alloc(2)),
        record(9, Event::End { member: 1 }),
        record(6, Event::Member { member: 2 }),
        record(6, alloc(1)),
        record(10, Event::Fork { member: 3 }),
    ];
    let mut trace = Trace::plain(Header { tick_ns: 1, cpus: 1 }, records);
    for details in [Vec::new(), vec![Details { group: 7, ..Details::default() }; 7]] {
        trace.details = details;
        let mut text = Vec::new();
        write(&trace, &mut text).unwrap();
        assert_eq!(read(&text[..]).unwrap(), trace);
    }
    let text = "# folioswap-trace tick_ns=1\n8 - member 1\n9 0 alloc 0 0:1\n6 - member 2\n7 0 free 1 0:1\n";
    let ticks: Vec<u64> = read(text.as_bytes()).unwrap().records.iter().map(|record| record.tick).collect();
    assert_eq!(ticks, [2, 3, 0, 1]);
}

#[test]
fn a_free_across_clusters_becomes_one_in_each() {
    let text = "# folioswap-trace tick_ns=1\n1 0 alloc 0 0:1\n2 0 free 1030 0:510\n";
    let trace = read(text.as_bytes()).unwrap();
    let frees: Vec<Event> = trace.records[1..].iter().map(|record| record.event).collect();
    let free = |entry, slots| Event::Free { cpu: 0, slots, entry };
    assert_eq!(frees, [free(510, 2), free(512, 512), free(1024, 512), free(1536, 4)]);
}

#[test]
fn a_wrong_line_is_named_with_what_is_wrong() {
    assert!(error("hello\n").contains("line 1 must be"));
    assert!(error("# folioswap-trace tick_ns=1 origin=9\n5 0 alloc 0 0:1\n").contains("before the origin"));
    let head = "# folioswap-trace tick_ns=1 cpus=2\n";
    for (line, problem) in [
        ("x 0 alloc 0 0:1", "the time is no number"),
        ("1 0 alloc 10 0:1", "order"),
        ("1 0 alloc 4 0:17", "misaligned"),
        ("1 0 alloc 4 17", "device:offset"),
        ("1 0 alloc 4", "a slot is missing"),
        ("1 2 alloc 0 0:1", "does not have"),
        ("1 0 take 0 0:1", "an event other than"),
        ("1 0 free 1 0:1 cause=luck", "a cause other than"),
        ("1 0 free 1 0:1 colour=red", "a word other than"),
        ("1 - member 1 colour=red", "a word other than"),
        ("1 0 free 1 0:0", "swap entry"),
    ] {
        let error = error(&format!("{head}{line}\n"));
        assert!(error.contains("line 2") && error.contains(problem), "{line}: {error}");
    }
    assert!(error(&format!("{head}1 0 free 1 0:1\n")).contains("no allocations"));
}
