extern crate std;
use crate::decisions::{Decisions, DecisionsWriter};
use crate::group::Group;
use crate::segment::Segment;
use core::sync::atomic::Ordering::Relaxed;
use std::boxed::Box;
use std::collections::BTreeSet;
use std::vec::Vec;

const PAGE: u64 = crate::units::PAGE_SIZE as u64;

/// Members and the pages that they have, by number: the true values, compared with the counted
/// ones.
struct Family {
    decisions: Box<Decisions>,
    segment: Box<Segment>,
    pages: Vec<Option<BTreeSet<u32>>>,
    next_page: u32,
}

impl Family {
    fn new() -> Self {
        // SAFETY: all-zero is a valid state of both.
        let (decisions, segment) =
            unsafe { (Box::new_zeroed().assume_init(), Box::new_zeroed().assume_init()) };
        let mut family = Family { decisions, segment, pages: Vec::new(), next_page: 0 };
        family.join(BTreeSet::new());
        family
    }
    fn group(&self) -> Group<'_> {
        Group { decisions: &self.decisions, segment: &self.segment }
    }
    fn writer(&self) -> DecisionsWriter<'_> {
        // SAFETY: memory of the test's own.
        unsafe { DecisionsWriter::new(&self.decisions) }
    }
    fn join(&mut self, pages: BTreeSet<u32>) {
        let id = self.writer().assign(&self.segment, 1).unwrap() as usize;
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
        let mut family = Family::new();
        for _ in 0..200 {
            let live: Vec<usize> = (0..family.pages.len()).filter(|&id| family.pages[id].is_some()).collect();
            let id = live[below(live.len())];
            let pages: Vec<u32> = family.pages[id].as_ref().unwrap().iter().copied().collect();
            match below(20) {
                0 if live.len() < 6 => {
                    let inherited = family.pages[id].clone().unwrap();
                    family.segment.members[id].sharing.gain_relative();
                    family.join(inherited);
                }
                1 if live.len() > 1 => {
                    family.writer().release(&family.segment, id as u32);
                    family.pages[id] = None;
                }
                2..5 => family.measure(id),
                // A first touch.
                5..9 => {
                    let page = family.new_page();
                    family.pages[id].as_mut().unwrap().insert(page);
                    family.count(id);
                }
                // A write to a page, which may be shared.
                9..16 if !pages.is_empty() => {
                    let page = pages[below(pages.len())];
                    family.end_of(id, page);
                    let new = family.new_page();
                    let pages = family.pages[id].as_mut().unwrap();
                    pages.remove(&page);
                    pages.insert(new);
                }
                // A page leaves.
                16.. if !pages.is_empty() => {
                    let page = pages[below(pages.len())];
                    family.end_of(id, page);
                    family.pages[id].as_mut().unwrap().remove(&page);
                    family.count(id);
                }
                _ => {}
            }
            // The parts of a page are whole bytes, so up to a few bytes are lost in each.
            let lost = family.next_page as u64 * 8;
            assert!(family.group().charge_bytes() + lost >= family.truth());
        }
        for id in (0..family.pages.len()).filter(|&id| family.pages[id].is_some()) {
            family.measure(id);
        }
        assert!(family.group().charge_bytes().abs_diff(family.truth()) <= family.next_page as u64 * 8);
    }
}

#[test]
fn what_a_member_unshares_counts_at_once() {
    let mut family = Family::new();
    let pages: BTreeSet<u32> = (1..=100).collect();
    family.pages[0] = Some(pages.clone());
    family.join(pages);
    family.measure(0);
    assert_eq!(family.group().charge_bytes(), 100 * PAGE);
    let (header, members) = (&family.segment.header, &family.segment.members);
    members[1].sharing.end(header, 10 * PAGE);
    assert_eq!(family.group().charge_bytes(), (100 + 10 + 5) * PAGE);
    assert_eq!(family.group().certain_charge_bytes(), (100 + 10) * PAGE);
    members[1].unfound_bytes.store(7 * PAGE, Relaxed);
    assert_eq!(family.group().charge_bytes(), (100 + 10 + 5 + 7) * PAGE);
    assert_eq!(
        family.group().certain_charge_bytes(),
        (100 + 10) * PAGE,
        "nobody is ended for what may not be there"
    );
    family.writer().release(&family.segment, 1);
    assert!(family.group().charge_bytes() >= 100 * PAGE);
    family.pages[1] = None;
    family.measure(0);
    assert_eq!(family.group().charge_bytes(), 100 * PAGE);
}
