use super::*;
use folioswap_trace::{HEADER_BYTES, Moment};

fn recording(name: &str) -> (Recording, PathBuf) {
    let path = std::env::temp_dir().join(format!("folioswap-recording-{}-{name}", std::process::id()));
    (Recording::create(path.clone()).expect("a file"), path)
}

fn events(path: &std::path::Path) -> Vec<Event> {
    let bytes = std::fs::read(path).expect("readable");
    std::fs::remove_file(path).expect("removed");
    Header::decode(&bytes).expect("a header");
    let (records, rest) = bytes[HEADER_BYTES..].as_chunks::<RECORD_BYTES>();
    assert!(rest.is_empty());
    records.iter().map(|record| Record::decode(record).expect("valid").event).collect()
}

fn push(ring: &MemberRing, ns: u64, entry: u64) -> Event {
    let event = Event::Alloc { cpu: 0, order: 0, entry };
    ring.ring.push(Moment { ns, cpu: 0 }, |_| event);
    event
}

#[test]
fn members_are_merged_by_time_and_told_apart() {
    let (mut recording, path) = recording("merge");
    let [first, second] = [(); 2].map(|()| recording.number());
    let (mut a, mut b) = (recording.ring(first).unwrap(), recording.ring(second).unwrap());
    let start = recording.origin_ns;
    let (a1, b2) = (push(&a, start + 1000, 1), push(&b, start + 2000, 2));
    // Two threads: the second record has the earlier time, and stays second.
    let (a4, a3) = (push(&a, start + 4000, 4), push(&a, start + 3000, 3));
    let later = push(&b, start + 3_600_000_000_000, 5);
    recording.drain([&mut a, &mut b].into_iter());
    let member = |member| Event::Member { member };
    let child = recording.forked(&mut b);
    assert_eq!(child, 2);
    recording.ended(b);
    recording.ended(a);
    let expected = [
        vec![a1, member(1), b2, member(0), a4, a3, member(1)],
        vec![later, Event::Fork { member: 2 }, Event::End { member: 1 }, Event::End { member: 0 }],
    ];
    let found = events(&path);
    assert_eq!(found, expected.concat());
    assert_eq!(recording.recorded([].into_iter()), Recorded { events: 8, members: 3, ..Recorded::default() });
    assert_eq!(recording.recorded([].into_iter()).warning(), None);
}

#[test]
fn what_a_full_ring_lost_is_said() {
    let (mut recording, path) = recording("full");
    let member = recording.number();
    let mut ring = recording.ring(member).unwrap();
    let start = recording.origin_ns;
    for entry in 1..=folioswap_trace::RING_RECORDS as u64 + 7 {
        push(&ring, start, entry);
    }
    recording.drain(std::iter::once(&mut ring));
    let after = push(&ring, start, 1);
    assert_eq!(recording.recorded(std::iter::once(&ring)).lost, 7);
    recording.ended(ring);
    let recorded = recording.recorded([].into_iter());
    assert_eq!(
        recorded.warning().as_deref(),
        Some(format!("7 of {} events are missing", folioswap_trace::RING_RECORDS + 9).as_str())
    );
    let found = events(&path);
    assert_eq!(found.len(), folioswap_trace::RING_RECORDS + 2);
    assert_eq!(found[folioswap_trace::RING_RECORDS], after);
}

#[test]
fn a_member_says_nothing_of_other_members() {
    let (mut recording, path) = recording("foreign");
    let member = recording.number();
    let ring = recording.ring(member).unwrap();
    ring.ring.push(Moment { ns: 0, cpu: 0 }, |_| Event::End { member: 77 });
    recording.ended(ring);
    assert_eq!(recording.recorded([].into_iter()).lost, 1);
    assert_eq!(events(&path), [Event::End { member: 0 }]);
}
