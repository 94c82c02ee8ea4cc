use super::*;
use folioswap_group::decisions::{Decisions, DecisionsWriter};
use folioswap_group::nested::WHOLE;
use folioswap_group::segment::Segment;

/// The memories of a group without members.
struct Memory {
    decisions: Box<Decisions>,
    segment: Box<Segment>,
}

impl Memory {
    fn new() -> Self {
        // SAFETY: all-zero is a valid state of both.
        unsafe {
            Memory { decisions: Box::new_zeroed().assume_init(), segment: Box::new_zeroed().assume_init() }
        }
    }

    fn group(&self) -> Group<'_> {
        Group { decisions: &self.decisions, segment: &self.segment }
    }

    fn writer(&self) -> DecisionsWriter<'_> {
        // SAFETY: memory of the test's own.
        unsafe { DecisionsWriter::new(&self.decisions) }
    }

    /// A new member that could give so many bytes.
    fn add(&self, pid: u32, evictable: u64) -> u32 {
        let id = self.writer().assign(&self.segment, pid).unwrap();
        self.segment.members[id as usize].evictable_bytes.store(evictable, Relaxed);
        id
    }

    /// The process id of a member.
    fn pid_of(&self, member: &Member) -> u32 {
        let id = self.segment.members.iter().position(|other| core::ptr::eq(other, member));
        self.decisions.seats[id.unwrap()].pid()
    }
}

#[test]
fn idle_members_give_first() {
    let memory = Memory::new();
    let (group, members) = (memory.group(), &memory.segment.members);
    for (pid, active, evictable) in [(1, 1, 100 << 20), (2, 0, 30 << 20), (3, 1, 300 << 20)] {
        let id = memory.add(pid, evictable);
        members[id as usize].active.store(active, Relaxed);
    }
    let mut asked = Vec::new();
    let own = own_share(group, WHOLE, &members[0], 20 << 20, |member, bytes| {
        asked.push((memory.pid_of(member), bytes));
    })
    .own;
    assert_eq!((own, asked.as_slice()), (0, &[(2, 20 << 20)][..]));
    asked.clear();
    let own = own_share(group, WHOLE, &members[0], 70 << 20, |member, bytes| {
        asked.push((memory.pid_of(member), bytes));
    })
    .own;
    assert_eq!((own, asked.as_slice()), (10 << 20, &[(2, 30 << 20), (3, 30 << 20)][..]));
    // Only its own members give for a group nested in [`WHOLE`].
    let nested = memory.writer().begin_group(WHOLE, 1 << 20).unwrap();
    memory.writer().set_group(0, nested);
    let own = own_share(group, nested, &members[0], 20 << 20, |_, _| panic!("nobody else is in it"));
    assert_eq!(own, Share { own: 20 << 20, all: 20 << 20 });
}

/// Members publish what they could give in memory that every member can write.
#[test]
fn no_share_exceeds_the_excess_whatever_members_publish() {
    let memory = Memory::new();
    for (pid, evictable) in [(1, u64::MAX), (2, u64::MAX), (3, 1 << 63), (4, 0)] {
        let id = memory.add(pid, evictable);
        memory.writer().set_group(id, 1000 * pid);
    }
    for excess in [0, 1, 4096, 1 << 63, u64::MAX] {
        let Share { own, all } =
            own_share(memory.group(), WHOLE, &memory.segment.members[0], excess, |_, bytes| {
                assert!(bytes <= excess, "{bytes} of {excess}");
            });
        assert!(own <= all && all <= excess, "{own} of {all} of {excess}");
    }
}

#[test]
fn the_heavier_gives_less_and_nobody_more_than_it_has() {
    let memory = Memory::new();
    let members = &memory.segment.members;
    for (pid, weight) in [(1, 100), (2, 400)] {
        let id = memory.add(pid, 100 << 20);
        members[id as usize].active.store(1, Relaxed);
        memory.writer().set_weight(id, weight);
    }
    let shares = |excess: u64| {
        let mut other = 0;
        let own = own_share(memory.group(), WHOLE, &members[0], excess, |_, bytes| other = bytes).own;
        (own >> 20, other >> 20)
    };
    assert_eq!(shares(50 << 20), (40, 10));
    assert_eq!(shares(150 << 20), (100, 30), "the rest is asked for next");
    // Idle ones give first, whatever their weight.
    members[1].active.store(0, Relaxed);
    assert_eq!(shares(50 << 20), (0, 50));
    // The next process at this seat has the default.
    memory.writer().release(&memory.segment, 1);
    let id = memory.add(3, 100 << 20);
    assert_eq!((id, memory.decisions.seats[1].weight()), (1, 100));
}
