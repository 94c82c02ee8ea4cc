//! Objects from a caller's view: each operation on its own.

use folioswap_shmem::{
    Allocation, CreateError, HugeAdvice, HugePolicy, Options, ShmemError, ShmemObject, ShmemSpace,
};
use std::sync::Arc;

const PAGE: u64 = 4096;

fn space() -> Arc<ShmemSpace> {
    ShmemSpace::new(Options::within(64 << 20)).unwrap()
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 7 % 251) as u8).collect()
}

fn content(object: &ShmemObject) -> Vec<u8> {
    let mut bytes = vec![0xee; object.size() as usize + 100];
    let len = object.read(0, &mut bytes).unwrap();
    assert_eq!(len as u64, object.size());
    bytes.truncate(len);
    bytes
}

#[test]
fn what_is_written_is_read_in_every_policy() {
    for huge in [HugePolicy::Never, HugePolicy::Always, HugePolicy::WithinSize, HugePolicy::Advise] {
        let space = space();
        let object = ShmemObject::new(&space, huge);
        object.advise(HugeAdvice::Huge);
        let bytes = pattern(5_000_000);
        assert_eq!(object.write(12_345, &bytes), Ok(bytes.len()));
        let mut expected = vec![0; 12_345];
        expected.extend_from_slice(&bytes);
        assert!(content(&object) == expected);
        let lent = object.lend(10_000, 3_000_000).unwrap();
        assert!(lent.pieces().collect::<Vec<_>>().concat() == expected[10_000..3_010_000]);
        assert_eq!(lent.len(), 3_000_000);
        drop(lent);
        drop(object);
        assert_eq!(space.statistics().folios + space.statistics().content, 0);
    }
}

#[test]
fn a_smaller_size_frees_and_growing_again_shows_zeroes() {
    let object = ShmemObject::new(&space(), HugePolicy::Always);
    object.write(0, &pattern(4 << 20)).unwrap();
    assert_eq!(object.pages(), 1024);
    object.set_size(1_000_001).unwrap();
    assert_eq!(object.pages(), 245);
    object.set_size(2_000_000).unwrap();
    let mut expected = pattern(1_000_001);
    expected.resize(2_000_000, 0);
    assert!(content(&object) == expected);
    object.set_size(0).unwrap();
    assert_eq!((object.pages(), object.size()), (0, 0));
    assert_eq!(object.set_size(1 << 63), Err(ShmemError::TooLarge));
}

#[test]
fn holes_are_punched_found_and_filled() {
    let object = ShmemObject::new(&space(), HugePolicy::Always);
    object.write(0, &pattern(4 << 20)).unwrap();
    object.punch_hole(1_000_000, 1_000_000).unwrap();
    let mut expected = pattern(4 << 20);
    expected[1_000_000..2_000_000].fill(0);
    assert!(content(&object) == expected);
    assert_eq!(object.size(), 4 << 20);
    let (first, last) = (1_000_000_u64.next_multiple_of(PAGE), 2_000_000 / PAGE * PAGE);
    assert_eq!(object.seek_hole(5), Some(first));
    assert_eq!(object.seek_data(first), Some(last));
    assert_eq!(object.seek_hole(last), Some(4 << 20));
    assert_eq!(object.seek_data(4 << 20), None);
    assert_eq!(object.seek_hole(4 << 20), None);
    object.zero_range(100, 3 << 20, Allocation::KeepSize).unwrap();
    expected[100..100 + (3 << 20)].fill(0);
    assert!(content(&object) == expected);
    assert_eq!(object.seek_hole(0), Some(4 << 20));
}

#[test]
fn allocation_is_zeroes_and_keeps_or_extends_the_size() {
    let object = ShmemObject::new(&space(), HugePolicy::Always);
    object.allocate(10_000, 100_000, Allocation::KeepSize).unwrap();
    assert_eq!((object.size(), object.pages()), (0, 25));
    object.allocate(10_000, 100_000, Allocation::Extend).unwrap();
    assert_eq!((object.size(), object.pages()), (110_000, 25));
    assert!(content(&object) == vec![0; 110_000]);
    object.set_size(200_000).unwrap();
    assert_eq!(object.pages(), 25, "growing frees nothing");
}

#[test]
fn an_allocation_that_does_not_fit_leaves_nothing_behind() {
    let space = ShmemSpace::new(Options { size: Some(1 << 20), ..Options::within(64 << 20) }).unwrap();
    let object = ShmemObject::new(&space, HugePolicy::Always);
    object.write(0, &pattern(9000)).unwrap();
    assert_eq!(object.allocate(0, 2 << 20, Allocation::Extend), Err(ShmemError::NoSpace));
    assert_eq!((object.size(), object.pages()), (9000, 3));
    assert_eq!(object.write(0, &pattern(2 << 20)), Ok(1 << 20));
    assert_eq!(object.write(1 << 20, &[1]), Err(ShmemError::NoSpace));
    assert!(content(&object) == pattern(1 << 20));
    object.punch_hole(0, PAGE).unwrap();
    assert_eq!(object.write(1 << 20, &[1]), Ok(1));
}

#[test]
fn far_offsets_and_ends_beyond_the_largest() {
    let object = ShmemObject::new(&space(), HugePolicy::Never);
    let far = i64::MAX as u64 - 5;
    object.write(far, b"ab").unwrap();
    assert_eq!(object.write(far, b"abcdefg"), Err(ShmemError::TooLarge));
    assert_eq!((object.size(), object.pages()), (far + 2, 1));
    let mut bytes = [0; 10];
    assert_eq!(object.read(far - 1, &mut bytes), Ok(3));
    assert_eq!(&bytes[..3], b"\0ab");
    assert_eq!(object.read(u64::MAX - 3, &mut bytes), Ok(0));
    assert_eq!(object.seek_data(0), Some(far / PAGE * PAGE));
    assert_eq!(object.seek_hole(far), Some(far + 2));
}

#[test]
fn a_limit_too_small_is_refused() {
    let error = ShmemSpace::new(Options::within(1 << 20)).unwrap_err();
    assert!(matches!(error, CreateError::LimitTooSmall { .. }), "{error}");
    assert!(error.to_string().contains("4194304"));
}
