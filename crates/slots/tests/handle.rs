//! The handle: configuration, memory, attach, payload, stats.

mod common;
use common::*;
use folioswap_slots::*;
use folioswap_test_support::memory::Zeroed;

#[test]
fn every_order_can_be_allocated_and_freed() {
    let swap = engine(8);
    let device = swap.swapon(DeviceSpec::new(4096)).unwrap();
    for size in 0..10 {
        let entry = take(&swap, CPU0, size, size);
        assert_eq!(swap.device_info(device).unwrap().inuse, 1 << size);
        swap.validate().unwrap();
        give(&swap, entry, size, size);
        assert_eq!(swap.device_info(device).unwrap().inuse, 0);
        swap.validate().unwrap();
    }
    let stats = swap.stats();
    assert_eq!(stats.allocated, [1; ORDERS]);
    assert_eq!((stats.inuse, stats.slots), (0, 4095));
}

#[test]
fn configuration_and_memory_are_checked() {
    type Swap = Slots<PAYLOAD>;
    let config = Config { cpus: 1, clusters_max: 4, frame_chunks_max: 1 };
    let bytes = Swap::bytes_needed(config);
    let memory = Zeroed::new(bytes + 4096);
    let start = memory.start();
    // SAFETY: fresh zeroed memory; the handles made from it do not overlap in use.
    unsafe {
        let init = |start, bytes, config| Swap::init(start, bytes, config).map(|_| ()).unwrap_err();
        assert_eq!(init(start, bytes - 1, config), ConfigError::MemoryTooSmall);
        assert_eq!(init(start.add(64), bytes, config), ConfigError::Misaligned);
        assert_eq!(init(start, bytes, Config { cpus: 0, ..config }), ConfigError::InvalidConfig);
        assert_eq!(Swap::attach(start).map(|_| ()).unwrap_err(), ConfigError::NotInitialised);
        Swap::init(start, bytes, config).unwrap();
        assert_eq!(Swap::attach(start).unwrap().config(), config);
        assert_eq!(Slots::<8>::attach(start).map(|_| ()).unwrap_err(), ConfigError::NotInitialised);
    }
}

#[test]
fn metadata_is_forty_bytes_per_cluster() {
    let bytes =
        |clusters_max| Slots::<PAYLOAD>::bytes_needed(Config { cpus: 4, clusters_max, frame_chunks_max: 16 });
    assert_eq!(bytes(1 << 20) - bytes(1 << 10), 40 * ((1 << 20) - (1 << 10)));
}

#[test]
fn bytes_per_slot() {
    let bytes = |clusters_max| {
        let config = Config { cpus: 2, clusters_max, frame_chunks_max: clusters_max.div_ceil(64) };
        Slots::<0>::bytes_needed(config)
    };
    // The chunk table is included. The rest is a fixed part, most of it for devices that are not
    // on, which nothing touches.
    let clusters = 1 << 16;
    let per_cluster = (bytes(2 * clusters) - bytes(clusters)) as f64 / f64::from(clusters);
    let unused = per_cluster / f64::from(CLUSTER_SLOTS);
    assert!(unused <= 0.1, "{unused} bytes per unused slot");
    let used = (Slots::<0>::FRAME_BYTES as f64 + per_cluster) / f64::from(CLUSTER_SLOTS);
    assert!(used <= 10.5, "{used} bytes per used slot, without the caller's own");
    let fixed = bytes(64) - 64 * 41;
    assert!(fixed <= 192 << 10, "{fixed} bytes whatever the size");
    println!("{unused:.3} bytes per unused slot, {used:.2} per used one, {fixed} fixed");
}

#[test]
fn attach_sees_what_another_handle_did() {
    let swap = engine(4);
    swap.swapon(DeviceSpec::new(1024)).unwrap();
    let entry = take(&swap, CPU0, 2, 5);
    // SAFETY: laid out by `engine`.
    let other = unsafe { Slots::<PAYLOAD>::attach(swap.metadata.start()).unwrap() };
    assert_eq!(other.word(entry), SlotWord::Cached { folio: FolioId(5), count: 1, zero: false });
    give(&other, entry, 2, 5);
    assert_eq!(swap.word(entry), SlotWord::Free);
    swap.validate().unwrap();
}

#[test]
fn payload_is_zero_at_first_and_kept_while_the_cluster_is_used() {
    let swap = engine(2);
    swap.swapon(DeviceSpec::new(1024)).unwrap();
    let first = take(&swap, CPU0, 9, 1);
    let fill = |value: u8| {
        for step in 0..512 {
            let payload = swap.payload(first.checked_add(step).unwrap()).unwrap();
            // SAFETY: the slot is used and its payload is ours.
            unsafe { payload.write_bytes(value, PAYLOAD) };
        }
    };
    fill(0xab);
    let mut seen = Vec::new();
    uncache(&swap, first, 9, 1);
    swap.put(first, 512, |entry, payload| {
        // SAFETY: the callback may use the payload.
        seen.push((entry, unsafe { payload.read() }));
    })
    .unwrap();
    assert_eq!(seen.len(), 512);
    assert!(seen.iter().all(|(_, byte)| *byte == 0xab));
    assert_eq!(swap.payload(first), None);
    let again = take(&swap, CPU0, 9, 2);
    for step in 0..512 {
        let payload = swap.payload(again.checked_add(step).unwrap()).unwrap();
        for byte in 0..PAYLOAD {
            // SAFETY: inside the payload.
            assert_eq!(unsafe { payload.add(byte).read() }, 0);
        }
    }
}

#[test]
fn entries_outside_any_device() {
    let swap = engine(2);
    let device = swap.swapon(DeviceSpec::new(600)).unwrap();
    let last = SwapEntry::new(device, 599).unwrap();
    let past = SwapEntry::new(device, 600).unwrap();
    let elsewhere = SwapEntry::new(DeviceId::new(7).unwrap(), 1).unwrap();
    assert_eq!(swap.word(last), SlotWord::Free);
    assert_eq!(swap.word(past), SlotWord::Bad);
    assert_eq!(swap.word(elsewhere), SlotWord::Bad);
    assert_eq!(swap.put(last, 2, |_, _| {}), Err(EntryError::OutOfRange));
    assert_eq!(swap.put(elsewhere, 1, |_, _| {}), Err(EntryError::NoDevice));
    assert_eq!(swap.dup(elsewhere, 1), Err(DupError::Entry(EntryError::NoDevice)));
    assert_eq!(swap.put(last, 1, |_, _| {}).unwrap().rejected, 1);
    assert_eq!(SwapEntry::from_raw(0), None);
    assert_eq!(SwapEntry::from_raw(1 << 51), None, "offset 0 is the header");
    assert_eq!(SwapEntry::from_raw(last.to_raw()), Some(last));
    assert_eq!(last.to_raw() >> 56, 0);
}
