//! Every record comes back as it was; bytes that no writer makes are refused or mean exactly
//! themselves.

use folioswap_trace::*;
use proptest::prelude::*;

fn entry() -> impl Strategy<Value = u64> {
    (0u64..32, 1u64..1 << 51).prop_map(|(device, offset)| device << 51 | offset)
}

fn range() -> impl Strategy<Value = (u16, u64)> {
    (entry(), 1u16..=512).prop_map(|(entry, slots)| (slots.min(512 - (entry % 512) as u16), entry))
}

fn event() -> impl Strategy<Value = Event> {
    let cpu = 0u16..CPUS_MAX as u16;
    prop_oneof![
        (cpu.clone(), 0u8..10, entry()).prop_map(|(cpu, order, entry)| {
            let aligned = (entry >> order) << order;
            let entry = if aligned & ((1 << 51) - 1) == 0 { aligned + (1 << order) } else { aligned };
            Event::Alloc { cpu, order, entry }
        }),
        (cpu.clone(), 1u8..10).prop_map(|(cpu, order)| Event::Fallback { cpu, order }),
        (cpu.clone(), range()).prop_map(|(cpu, (slots, entry))| Event::Free { cpu, slots, entry }),
        (cpu.clone(), range()).prop_map(|(cpu, (slots, entry))| Event::Retain { cpu, slots, entry }),
        (cpu, range()).prop_map(|(cpu, (slots, entry))| Event::Reuse { cpu, slots, entry }),
        any::<u32>().prop_map(|member| Event::Member { member }),
        any::<u32>().prop_map(|member| Event::End { member }),
        any::<u32>().prop_map(|member| Event::Fork { member }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn records_come_back(events in prop::collection::vec((event(), 0..=TICK_MAX), 0..20)) {
        let records: Vec<Record> = events.into_iter().map(|(event, tick)| Record { tick, event }).collect();
        let mut buffer = vec![0; records.len() * RECORD_BYTES + 5];
        let mut encoder = Encoder::new(&mut buffer);
        for record in &records {
            prop_assert_eq!(encoder.push(record), Ok(()));
        }
        let one_more = Record { tick: 0, event: Event::Member { member: 0 } };
        prop_assert_eq!(encoder.push(&one_more), Err(PushError::Full));
        let bytes = encoder.finish();
        let back: Vec<Record> =
            bytes.chunks_exact(RECORD_BYTES).map(|b| Record::decode(b.try_into().unwrap()).unwrap()).collect();
        prop_assert_eq!(back, records);
    }

    /// Bytes that decode encode to the same bytes again: no bit is ignored.
    #[test]
    fn any_bytes_are_refused_or_mean_themselves(bytes in any::<[u8; RECORD_BYTES]>()) {
        if let Ok(record) = Record::decode(&bytes) {
            prop_assert_eq!(record.encode().unwrap(), bytes);
        }
    }

    /// As above, but near valid records, where most bits matter.
    #[test]
    fn a_flipped_bit_is_refused_or_means_itself(event in event(), tick in 0..=TICK_MAX, bit in 0usize..128) {
        let mut bytes = Record { tick, event }.encode().unwrap();
        bytes[bit / 8] ^= 1 << (bit % 8);
        if let Ok(record) = Record::decode(&bytes) {
            prop_assert_eq!(record.encode().unwrap(), bytes);
        }
    }

    #[test]
    fn headers_come_back(tick_ns in 1u32.., cpus in 1..=CPUS_MAX) {
        let header = Header { tick_ns, cpus };
        prop_assert_eq!(Header::decode(&header.encode()), Ok(header));
    }

    #[test]
    fn a_header_of_any_bytes_is_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        prop_assert!(Header::decode(&bytes).is_err());
    }
}

#[test]
fn what_is_wrong_is_named() {
    let alloc = |cpu, order, entry| Record { tick: 0, event: Event::Alloc { cpu, order, entry } }.encode();
    assert_eq!(alloc(0, 10, 1024), Err(RecordError::Order));
    assert_eq!(alloc(0, 200, 1024), Err(RecordError::Order));
    assert_eq!(alloc(0, 4, 17), Err(RecordError::Entry));
    assert_eq!(alloc(0, 0, 0), Err(RecordError::Entry));
    assert_eq!(alloc(0, 0, 1 << 56 | 1), Err(RecordError::Entry));
    assert_eq!(alloc(4096, 0, 1), Err(RecordError::Cpu));
    let free = |slots, entry| Record { tick: 0, event: Event::Free { cpu: 0, slots, entry } }.encode();
    assert_eq!(free(0, 1), Err(RecordError::Slots));
    assert_eq!(free(513, 512), Err(RecordError::Slots));
    assert_eq!(free(512, 1), Err(RecordError::Slots));
    let fallback = |order| Record { tick: 0, event: Event::Fallback { cpu: 0, order } }.encode();
    assert_eq!(fallback(0), Err(RecordError::Order));
    let late = Record { tick: TICK_MAX + 1, event: Event::Member { member: 1 } };
    assert_eq!(late.encode(), Err(RecordError::Tick));
    assert_eq!(Record::decode(&[0xff; RECORD_BYTES]), Err(RecordError::Reserved));
}

#[test]
fn a_header_that_is_wrong_is_named() {
    let good = Header { tick_ns: 1000, cpus: 4 }.encode();
    assert_eq!(Header::decode(&good[..63]), Err(HeaderError::TooShort));
    let with = |at: usize, byte: u8| {
        let mut bytes = good;
        bytes[at] = byte;
        Header::decode(&bytes)
    };
    assert_eq!(with(0, 0), Err(HeaderError::NotATrace));
    assert_eq!(with(8, 2), Err(HeaderError::Version(2)));
    assert_eq!(with(16, 17), Err(HeaderError::Invalid));
    assert_eq!(with(24, 0), Err(HeaderError::Invalid));
    assert_eq!(with(63, 1), Err(HeaderError::Invalid));
}
