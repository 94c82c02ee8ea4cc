//! The limit: content far beyond it, behaviour when everything is full, and memory given back.

use folioswap_shmem::{
    Allocation, HugePolicy, LimitError, Options, ShmemError, ShmemObject, ShmemSpace, SwapDevice,
};
use folioswap_test_support::random::noise;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const MIB: usize = 1 << 20;

/// Runs one test at a time: the first measures the memory of the whole process, which includes that
/// of the others.
fn alone() -> MutexGuard<'static, ()> {
    static TESTS: Mutex<()> = Mutex::new(());
    TESTS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with_file(limit: usize, max: usize) -> Arc<ShmemSpace> {
    let file = SwapDevice::temporary("/var/tmp".as_ref(), Some(max as u64), 0).unwrap();
    ShmemSpace::new(Options::within(limit as u64).and(file)).unwrap()
}

fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// Noise of four times the limit, written and read twice by two threads: it goes to the file, and
/// the limit is kept.
#[test]
fn content_of_four_times_the_limit_that_does_not_compress() {
    let _alone = alone();
    let limit = 24 * MIB;
    for huge in [HugePolicy::Never, HugePolicy::Always] {
        let before = resident();
        let space = with_file(limit, 256 * MIB);
        let objects: Vec<ShmemObject> = (0..2).map(|_| ShmemObject::new(&space, huge)).collect();
        let most = std::sync::atomic::AtomicU64::new(0);
        std::thread::scope(|scope| {
            for (number, object) in objects.iter().enumerate() {
                let (space, most) = (&space, &most);
                scope.spawn(move || {
                    for round in 0..3 {
                        for at in 0..48 {
                            let expected = noise((number * 100 + at) as u64, MIB);
                            if round == 0 {
                                assert_eq!(object.write((at * MIB) as u64, &expected), Ok(MIB));
                            } else {
                                let mut found = vec![0; MIB];
                                assert_eq!(object.read((at * MIB) as u64, &mut found), Ok(MIB));
                                assert!(found == expected, "{huge:?} object {number} MiB {at} round {round}");
                            }
                            let statistics = space.statistics();
                            let used = statistics.used + statistics.idle;
                            most.fetch_max(used, std::sync::atomic::Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        let most = most.into_inner();
        let slack = (limit / 20 + 16 * MIB) as u64;
        assert!(most <= limit as u64 + (4 << 20), "{most} by its own count");
        let grown = resident().saturating_sub(before);
        assert!(grown <= limit as u64 + slack, "{grown} by the system's");
        assert!(space.statistics().on_file > 60 << 20);
        drop(objects);
        let after = space.statistics();
        assert_eq!((after.content, after.on_file, after.folios), (0, 0, 0));
        assert!(after.idle <= (limit / 16 + MIB) as u64, "{after:?}");
        space.validate().unwrap();
    }
}

/// Memory and file are full: writes say so, nothing hangs, nothing is lost, and freed space can be
/// used again.
#[test]
fn when_everything_is_full_writing_says_so() {
    let _alone = alone();
    for (space, least) in
        [(with_file(8 * MIB, 16 * MIB), 18), (ShmemSpace::new(Options::within(8 * MIB as u64)).unwrap(), 3)]
    {
        let object = ShmemObject::new(&space, HugePolicy::Always);
        let mut end = 0;
        let refused = loop {
            match object.write(end as u64, &noise((end / MIB) as u64, MIB)) {
                Ok(MIB) => end += MIB,
                other => break other,
            }
            assert!(end < 100 * MIB, "it is full some day");
        };
        assert!(matches!(refused, Err(ShmemError::NoSpace) | Ok(1..MIB)), "{refused:?}");
        assert!(end >= least * MIB, "{end}");
        for at in (0..end / MIB).rev() {
            let mut found = vec![0; MIB];
            assert_eq!(object.read((at * MIB) as u64, &mut found), Ok(MIB));
            assert!(found == noise(at as u64, MIB), "MiB {at} of {end}");
        }
        assert_eq!(object.write((end + MIB) as u64, &noise(1, 8 * MIB)).unwrap_or(0) / (8 * MIB), 0);
        object.set_size(0).unwrap();
        assert_eq!(object.write(0, &noise(7, 2 * MIB)), Ok(2 * MIB));
        space.validate().unwrap();
    }
}

/// Content of zeroes costs next to nothing, and much of it fits.
#[test]
fn zeroes_take_no_room() {
    let _alone = alone();
    let space = ShmemSpace::new(Options::within(8 * MIB as u64)).unwrap();
    let object = ShmemObject::new(&space, HugePolicy::Always);
    let zeroes = vec![0; MIB];
    (0..64).for_each(|at| assert_eq!(object.write((at * MIB) as u64, &zeroes), Ok(MIB)));
    let statistics = space.statistics();
    assert!(statistics.used + statistics.idle <= 9 << 20, "{statistics:?}");
    assert_eq!(statistics.content, 64 << 20);
    object.write(40 << 20, b"here").unwrap();
    let mut found = vec![1; 64 * MIB];
    object.read(0, &mut found).unwrap();
    assert_eq!(&found[40 << 20..(40 << 20) + 4], b"here");
    assert_eq!(found.iter().filter(|&&byte| byte != 0).count(), 4);
}

/// A range that can never have a place is refused at once, and no content has to leave for it.
#[test]
fn an_allocation_without_end_is_refused_before_it_begins() {
    let _alone = alone();
    let space = ShmemSpace::new(Options::within(8 * MIB as u64)).unwrap();
    let object = ShmemObject::new(&space, HugePolicy::Always);
    object.write(0, &noise(1, 4 * MIB)).unwrap();
    for len in [1 << 50, i64::MAX as u64] {
        assert_eq!(object.allocate(0, len, Allocation::Extend), Err(ShmemError::NoSpace));
        assert_eq!(object.zero_range(0, len, Allocation::Extend), Err(ShmemError::NoSpace));
    }
    assert_eq!(space.statistics().counts, Default::default(), "nothing was tried");
    let mut found = vec![0; 4 * MIB];
    assert_eq!((object.size(), object.read(0, &mut found)), (found.len() as u64, Ok(found.len())));
    assert!(found == noise(1, 4 * MIB));
    assert_eq!(object.allocate(4 * MIB as u64, MIB as u64, Allocation::Extend), Ok(()));
}

/// Incompressible content precedes compressible content in the order of reclaim: there is room as
/// long as any of it could leave.
#[test]
fn what_finds_no_place_does_not_hide_what_would() {
    let _alone = alone();
    let space = ShmemSpace::new(Options::within(8 * MIB as u64)).unwrap();
    let object = ShmemObject::new(&space, HugePolicy::Never);
    assert_eq!(object.write(0, &noise(1, 4 * MIB)), Ok(4 * MIB));
    let words: Vec<u8> = (0..MIB).map(|at| if at % 64 == 0 { (at / 64) as u8 } else { 7 }).collect();
    for at in 4..20 {
        assert_eq!(object.write((at * MIB) as u64, &words), Ok(MIB), "MiB {at}");
    }
    let mut found = vec![0; 4 * MIB];
    object.read(0, &mut found).unwrap();
    assert!(found == noise(1, 4 * MIB));
    for at in 4..20 {
        object.read((at * MIB) as u64, &mut found[..MIB]).unwrap();
        assert!(found[..MIB] == words, "MiB {at}");
    }
}

/// Noise that a higher limit has room for leaves when the limit sinks, and is as it was.
#[test]
fn a_limit_that_changes_is_kept_and_bounded() {
    let _alone = alone();
    let (low, high) = (16 * MIB as u64, 64 * MIB as u64);
    let file = SwapDevice::temporary("/var/tmp".as_ref(), Some(256 << 20), 0).unwrap();
    let options = Options { limit_max: high, size: Some(high), ..Options::within(low) };
    let space = ShmemSpace::new(options.and(file)).unwrap();
    assert_eq!(space.set_limit(high + 1), Err(LimitError::TooLarge { most: high }));
    assert_eq!(space.set_limit(1), Err(LimitError::TooSmall { least: Options::LEAST_LIMIT }));
    assert_eq!(space.statistics().limit, low, "a limit that is refused changes nothing");
    let object = ShmemObject::new(&space, HugePolicy::Always);
    for turn in 0..4 {
        space.set_limit(high).unwrap();
        for at in 0..40 {
            assert_eq!(object.write((at * MIB) as u64, &noise((turn * 100 + at) as u64, MIB)), Ok(MIB));
        }
        assert!(space.statistics().used > low, "the higher limit is used");
        space.set_limit(low).unwrap();
        while !space.is_within_limit() {
            std::thread::yield_now();
        }
        for at in 0..40 {
            let mut found = vec![0; MIB];
            assert_eq!(object.read((at * MIB) as u64, &mut found), Ok(MIB));
            assert!(found == noise((turn * 100 + at) as u64, MIB), "turn {turn} MiB {at}");
        }
    }
    assert_eq!(space.set_size(39 << 20), Err(LimitError::TooSmall { least: 40 << 20 }));
    assert_eq!(space.set_size(40 << 20), Ok(()));
    assert_eq!(object.write(40 << 20, &[7; 4096]), Err(ShmemError::NoSpace));
    assert_eq!(space.set_size(41 << 20), Ok(()));
    assert_eq!(object.write(40 << 20, &[7; 4096]), Ok(4096));
}
