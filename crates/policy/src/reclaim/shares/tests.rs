use super::*;
use folioswap_group::nested::WHOLE;

#[test]
fn idle_members_give_first() {
    // SAFETY: all-zero is a valid segment.
    let segment = unsafe { std::boxed::Box::<Segment>::new_zeroed().assume_init() };
    for (pid, active, evictable) in [(1, 1, 100 << 20), (2, 0, 30 << 20), (3, 1, 300 << 20)] {
        let id = segment.assign(pid).unwrap();
        segment.members[id as usize].active.store(active, Relaxed);
        segment.members[id as usize].evictable_bytes.store(evictable, Relaxed);
    }
    let mut asked = std::vec::Vec::new();
    let own = own_share(&segment, WHOLE, &segment.members[0], 20 << 20, |member, bytes| {
        asked.push((member.pid.load(Relaxed), bytes));
    });
    assert_eq!((own, asked.as_slice()), (0, &[(2, 20 << 20)][..]));
    asked.clear();
    let own = own_share(&segment, WHOLE, &segment.members[0], 70 << 20, |member, bytes| {
        asked.push((member.pid.load(Relaxed), bytes));
    });
    assert_eq!((own, asked.as_slice()), (10 << 20, &[(2, 30 << 20), (3, 30 << 20)][..]));
    // Only its own members give for a group nested in [`WHOLE`].
    let group = segment.begin_group(WHOLE, 1 << 20).unwrap();
    segment.members[0].set_group(group);
    let own =
        own_share(&segment, group, &segment.members[0], 20 << 20, |_, _| panic!("nobody else is in it"));
    assert_eq!(own, 20 << 20);
}

/// Members publish what they could give in memory that every member can write.
#[test]
fn no_share_exceeds_the_excess_whatever_members_publish() {
    // SAFETY: all-zero is a valid segment.
    let segment = unsafe { std::boxed::Box::<Segment>::new_zeroed().assume_init() };
    for (pid, evictable) in [(1, u64::MAX), (2, u64::MAX), (3, 1 << 63), (4, 0)] {
        let id = segment.assign(pid).unwrap();
        segment.members[id as usize].evictable_bytes.store(evictable, Relaxed);
        segment.members[id as usize].set_group(1000 * pid);
    }
    for excess in [0, 1, 4096, 1 << 63, u64::MAX] {
        let own = own_share(&segment, WHOLE, &segment.members[0], excess, |_, bytes| {
            assert!(bytes <= excess, "{bytes} of {excess}");
        });
        assert!(own <= excess, "{own} of {excess}");
    }
}
