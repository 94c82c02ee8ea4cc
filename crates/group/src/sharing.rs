//! What relatives share after a fork, counted once, and never too low.
//!
//! The kernel tells a member how much of its memory is shared, in proportion (`Pss_Anon`), but only when it is asked, at the
//! price of a walk over its page tables; and what one member does changes what is true of the others. So a member
//! publishes a *discount*, the difference between what is resident in it and its part of that, and everything that may
//! have made a discount too high since is added to a sum, at once, by whoever does it:
//!
//! * A page that was shared by n and is not shared by one of them any more (it was written to, or left) is no longer 1/n
//!   in each. Who did it takes a whole page off its own discount. The other n - 1 count (n - 1)/n of a page between
//!   them where it is one now: too little by 1/n, at most half a page.
//! * A member that ends counts nothing any more. Of each page that it shared the others count too little by at most half.
//!
//! So the group's charge is the sum of what its members count, plus half of what stopped being shared since the
//! oldest discount was measured. It is exact again when all have measured.

use crate::segment::{Header, Member};
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// A member's part. All-zero: it shares nothing. Written by its member.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Sharing {
    /// The discount as it was measured, plus what [`Sharing::ended_bytes`] was just before.
    until: AtomicU64,
    /// Bytes that stopped being shared by this member's doing, since it began.
    ended_bytes: AtomicU64,
    /// What [`Header::unshared_bytes`] was just before the discount was measured.
    seen: AtomicU64,
    /// 1: another member has, or had, memory of this one, or the other way round.
    related: AtomicU64,
}

/// Where the counters stood just before a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before {
    ended: u64,
    unshared: u64,
}

impl Sharing {
    /// What the member does not count of what is resident in it, in bytes.
    pub fn discount(&self) -> u64 {
        self.until.load(Relaxed).saturating_sub(self.ended_bytes.load(Relaxed))
    }

    /// Bytes that stopped being shared by this member's doing, since it began.
    pub fn ended_bytes(&self) -> u64 {
        self.ended_bytes.load(Relaxed)
    }

    /// Another member may share memory with this one from now on. To be called before that member measures.
    pub fn gain_relative(&self) {
        self.related.store(1, Release);
    }

    /// To be called before the discount is measured.
    pub fn before_measuring(&self, header: &Header) -> Before {
        Before { ended: self.ended_bytes.load(Relaxed), unshared: header.unshared_bytes.load(Acquire) }
    }

    /// The measured discount, in bytes: resident memory minus the proportional part of it.
    pub fn publish(&self, before: Before, discount: u64) {
        self.until.store(before.ended + discount, Relaxed);
        // Who finds the new stamp finds the new discount: the sum is never too low in between.
        self.seen.store(before.unshared, Release);
    }

    /// Bytes that stopped being shared, in the whole group, since the discount was measured.
    pub fn stale_bytes(&self, header: &Header) -> u64 {
        let seen = self.seen.load(Acquire);
        header.unshared_bytes.load(Relaxed).saturating_sub(seen)
    }

    /// This member has stopped sharing so many bytes, or may have.
    pub fn end(&self, header: &Header, bytes: u64) {
        header.unshared_bytes.fetch_add(bytes, Relaxed);
        self.ended_bytes.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn clear(&self) {
        let Sharing { until, ended_bytes, seen, related } = self;
        for field in [until, ended_bytes, seen, related] {
            field.store(0, Relaxed);
        }
    }
}

impl Member {
    /// What it counts towards the limit, in bytes, as measured. Too low by its part of [`uncertain_bytes`], and by its unfound bytes.
    pub fn charge(&self) -> u64 {
        // The discount first: what ends meanwhile makes it only smaller.
        let discount = self.sharing.discount();
        self.charge_bytes.load(Relaxed).saturating_sub(discount)
    }

    /// It ends: what it shared is counted by the others as soon as they measure, and until then as uncertain.
    pub(crate) fn end_sharing(&self, header: &Header) {
        if self.sharing.related.load(Acquire) != 0 {
            header.unshared_bytes.fetch_add(self.charge_bytes.load(Relaxed), Release);
        }
    }
}

/// By how much the members together may count too little, in bytes, at most.
pub fn uncertain_bytes<'a>(header: &Header, members: impl Iterator<Item = &'a Member>) -> u64 {
    let sharing = members.filter(|member| member.sharing.discount() > 0);
    sharing.map(|member| member.sharing.stale_bytes(header)).max().unwrap_or(0) / 2
}

#[cfg(test)]
mod tests {
    extern crate std;
    use crate::segment::Segment;
    use core::sync::atomic::Ordering::Relaxed;
    use std::boxed::Box;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    const PAGE: u64 = 4096;

    /// Members and the pages that they have, by number; what is true, against what is counted.
    struct Group {
        segment: Box<Segment>,
        pages: Vec<Option<BTreeSet<u32>>>,
        next_page: u32,
    }

    impl Group {
        fn new() -> Self {
            // SAFETY: all-zero is a valid segment.
            let segment = unsafe { Box::<Segment>::new_zeroed().assume_init() };
            let mut group = Group { segment, pages: Vec::new(), next_page: 0 };
            group.join(BTreeSet::new());
            group
        }
        fn join(&mut self, pages: BTreeSet<u32>) {
            let id = self.segment.assign(1).unwrap() as usize;
            if id == self.pages.len() {
                self.pages.push(None);
            }
            self.pages[id] = Some(pages);
            self.segment.members[id].sharing.gain_relative();
            self.measure(id);
        }
        fn sharers(&self, page: u32) -> u64 {
            self.pages.iter().flatten().filter(|pages| pages.contains(&page)).count() as u64
        }
        fn resident(&self, id: usize) -> u64 {
            self.pages[id].as_ref().unwrap().len() as u64 * PAGE
        }
        fn count(&self, id: usize) {
            self.segment.members[id]
                .charge_bytes
                .store(self.resident(id), std::sync::atomic::Ordering::Relaxed);
        }
        /// The evictor of a member measures.
        fn measure(&self, id: usize) {
            let member = &self.segment.members[id];
            let before = member.sharing.before_measuring(&self.segment.header);
            let part: u64 =
                self.pages[id].as_ref().unwrap().iter().map(|&page| PAGE / self.sharers(page)).sum();
            member.sharing.publish(before, self.resident(id) - part);
            self.count(id);
        }
        fn truth(&self) -> u64 {
            self.pages.iter().flatten().flatten().collect::<BTreeSet<_>>().len() as u64 * PAGE
        }
        fn end_of(&self, id: usize, page: u32) {
            if self.sharers(page) > 1 {
                self.segment.members[id].sharing.end(&self.segment.header, PAGE);
            }
        }
        fn new_page(&mut self) -> u32 {
            self.next_page += 1;
            self.next_page
        }
    }

    #[test]
    fn the_charge_is_never_below_what_is_there_and_exact_when_all_have_measured() {
        let mut random = 7u64;
        let mut below = move |bound: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random % bound as u64) as usize
        };
        for _ in 0..300 {
            let mut group = Group::new();
            for _ in 0..200 {
                let live: Vec<usize> =
                    (0..group.pages.len()).filter(|&id| group.pages[id].is_some()).collect();
                let id = live[below(live.len())];
                let pages: Vec<u32> = group.pages[id].as_ref().unwrap().iter().copied().collect();
                match below(20) {
                    0 if live.len() < 6 => {
                        let inherited = group.pages[id].clone().unwrap();
                        group.segment.members[id].sharing.gain_relative();
                        group.join(inherited);
                    }
                    1 if live.len() > 1 => {
                        group.segment.release(id as u32);
                        group.pages[id] = None;
                    }
                    2..5 => group.measure(id),
                    // A first touch.
                    5..9 => {
                        let page = group.new_page();
                        group.pages[id].as_mut().unwrap().insert(page);
                        group.count(id);
                    }
                    // A write to a page, which may be shared.
                    9..16 if !pages.is_empty() => {
                        let page = pages[below(pages.len())];
                        group.end_of(id, page);
                        let new = group.new_page();
                        let pages = group.pages[id].as_mut().unwrap();
                        pages.remove(&page);
                        pages.insert(new);
                    }
                    // A page leaves.
                    16.. if !pages.is_empty() => {
                        let page = pages[below(pages.len())];
                        group.end_of(id, page);
                        group.pages[id].as_mut().unwrap().remove(&page);
                        group.count(id);
                    }
                    _ => {}
                }
                // The parts of a page are whole bytes: up to a few are lost in each.
                let lost = group.next_page as u64 * 8;
                assert!(group.segment.charge_bytes() + lost >= group.truth());
            }
            for id in (0..group.pages.len()).filter(|&id| group.pages[id].is_some()) {
                group.measure(id);
            }
            assert!(group.segment.charge_bytes().abs_diff(group.truth()) <= group.next_page as u64 * 8);
        }
    }

    #[test]
    fn what_a_member_unshares_counts_at_once() {
        let mut group = Group::new();
        let pages: BTreeSet<u32> = (1..=100).collect();
        group.pages[0] = Some(pages.clone());
        group.join(pages);
        group.measure(0);
        assert_eq!(group.segment.charge_bytes(), 100 * PAGE);
        let (header, members) = (&group.segment.header, &group.segment.members);
        members[1].sharing.end(header, 10 * PAGE);
        assert_eq!(group.segment.charge_bytes(), (100 + 10 + 5) * PAGE);
        assert_eq!(group.segment.certain_charge_bytes(), (100 + 10) * PAGE);
        members[1].unfound_bytes.store(7 * PAGE, Relaxed);
        assert_eq!(group.segment.charge_bytes(), (100 + 10 + 5 + 7) * PAGE);
        assert_eq!(
            group.segment.certain_charge_bytes(),
            (100 + 10) * PAGE,
            "nobody is ended for what may not be there"
        );
        group.segment.release(1);
        assert!(group.segment.charge_bytes() >= 100 * PAGE);
        group.pages[1] = None;
        group.measure(0);
        assert_eq!(group.segment.charge_bytes(), 100 * PAGE);
    }
}
