extern crate std;
use crate::segment::Segment;
use core::sync::atomic::Ordering::Relaxed;
use std::boxed::Box;
use std::collections::BTreeSet;
use std::vec::Vec;

const PAGE: u64 = crate::units::PAGE_SIZE as u64;

/// Members and the pages that they have, by number: the true values, compared with the counted
/// ones.
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
        self.segment.members[id].charge_bytes.store(self.resident(id), std::sync::atomic::Ordering::Relaxed);
    }
    /// The evictor of a member measures.
    fn measure(&self, id: usize) {
        let member = &self.segment.members[id];
        let before = member.sharing.before_measuring(&self.segment.header);
        let part: u64 = self.pages[id].as_ref().unwrap().iter().map(|&page| PAGE / self.sharers(page)).sum();
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
            let live: Vec<usize> = (0..group.pages.len()).filter(|&id| group.pages[id].is_some()).collect();
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
            // The parts of a page are whole bytes, so up to a few bytes are lost in each.
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
