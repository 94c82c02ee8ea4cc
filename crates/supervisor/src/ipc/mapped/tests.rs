use super::*;
use folioswap_group::segment::Scope;

#[test]
fn a_segment_is_shared_and_foreign_files_are_refused() {
    let segment = SegmentFile::create().expect("memfd");
    assert!(Mapped::read_only(&segment.read_only).is_err(), "no header yet");
    segment.mapped.initialise(7, 1 << 30, Scope::Total, []);
    let other = Mapped::read_only(&segment.read_only).expect("valid now");
    assert_eq!(other.header.supervisor_pid.load(std::sync::atomic::Ordering::Relaxed), 7);
    let empty = memfd_create("x", MemfdFlags::ALLOW_SEALING).expect("memfd");
    assert!(Mapped::read_only(&empty).is_err());
}
