//! Groups: nested limits, the group id of each slot, uncharging in runs, and the group's
//! `vm_swap_full` (spec §0, §2.7).

mod common;
use common::*;
use folioswap_slots::*;
use folioswap_test_support::memory::Zeroed;
use folioswap_test_support::random::Random;
use proptest::prelude::*;
use std::collections::HashMap;

const GROUPS: usize = size_of::<Groups>();

/// Memory of a table without groups.
struct Accounts(Zeroed);

impl Accounts {
    fn new() -> Accounts {
        Accounts(Zeroed::new(GROUPS))
    }
}

impl std::ops::Deref for Accounts {
    type Target = Groups;
    fn deref(&self) -> &Groups {
        // SAFETY: zeroed memory of the right size and alignment is a table without groups; it lives
        // as long as `self`.
        unsafe { self.0.start().cast().as_ref() }
    }
}

fn take_for(
    swap: &Slots<PAYLOAD>,
    groups: &Groups,
    group: GroupId,
    size: u32,
    folio: u32,
) -> Result<SwapEntry, AllocError> {
    let hooks = ChargeTo { groups, group, slots: swap, inner: NoHooks };
    swap.alloc_folio_with(CPU0, order(size), FolioId(folio), DeviceMask::ALL, &hooks)
}

/// Ends the write-back and gives up the only count; returns the number of changes to an account.
fn give_back(swap: &Slots<PAYLOAD>, groups: &Groups, entry: SwapEntry, size: u32, folio: u32) -> u32 {
    uncache(swap, entry, size, folio);
    put_slots(swap, groups, entry, 1 << size)
}

fn put_slots(swap: &Slots<PAYLOAD>, groups: &Groups, entry: SwapEntry, slots: u32) -> u32 {
    let mut uncharge = Uncharge::new(groups);
    // SAFETY: all slots were taken with `ChargeTo`.
    let put = swap.put(entry, slots, |freed, payload| unsafe { uncharge.freed(freed, payload) }).unwrap();
    assert_eq!(put.rejected, 0);
    uncharge.finish()
}

fn used(groups: &Groups, group: GroupId) -> u64 {
    groups.stats(group).used
}

#[test]
fn a_charge_counts_for_all_above_and_stops_at_the_first_limit() {
    let groups = Accounts::new();
    let top = groups.create(None, Some(100)).unwrap();
    let (left, right) =
        (groups.create(Some(top), Some(80)).unwrap(), groups.create(Some(top), None).unwrap());
    groups.charge(left, 60).unwrap();
    groups.charge(right, 40).unwrap();
    assert_eq!([top, left, right].map(|group| used(&groups, group)), [100, 60, 40]);
    assert_eq!(groups.charge(right, 1), Err(ChargeRefused), "the limit above it");
    assert_eq!(groups.charge(left, 21), Err(ChargeRefused), "its own");
    assert_eq!([top, left, right].map(|group| used(&groups, group)), [100, 60, 40], "nothing is left of it");
    assert_eq!([top, left, right].map(|group| groups.stats(group).refused), [1, 1, 0]);
    groups.uncharge(left, 60);
    assert_eq!([top, left, right].map(|group| used(&groups, group)), [40, 0, 40]);
    groups.set_limit(top, Some(30));
    assert_eq!(groups.stats(top).limit, Some(30));
    assert_eq!(groups.charge(left, 1), Err(ChargeRefused));
    groups.set_limit(top, None);
    groups.charge(left, 80).unwrap();
}

#[test]
fn a_group_in_use_is_not_removed_and_a_removed_one_is_made_anew() {
    let groups = Accounts::new();
    let top = groups.create(None, None).unwrap();
    let below = groups.create(Some(top), Some(5)).unwrap();
    assert_eq!(groups.remove(top), Err(GroupError::InUse), "one below it");
    groups.charge(below, 5).unwrap();
    assert_eq!(groups.charge(below, 1), Err(ChargeRefused));
    assert_eq!(groups.remove(below), Err(GroupError::InUse), "it has slots");
    groups.uncharge(below, 5);
    groups.remove(below).unwrap();
    assert_eq!(groups.remove(below), Err(GroupError::NoSuchGroup));
    assert_eq!(groups.create(Some(below), None), Err(GroupError::NoSuchGroup));
    assert_eq!(groups.create(None, None).unwrap(), below);
    assert_eq!(groups.stats(below), GroupStats { used: 0, limit: None, refused: 0, failed: 0 });
    groups.remove(top).unwrap();
    groups.remove(below).unwrap();
}

#[test]
fn no_more_groups_than_there_is_room_for() {
    let groups = Accounts::new();
    let top = groups.create(None, None).unwrap();
    assert!((1..GROUPS_MAX).all(|_| groups.create(Some(top), None).is_ok()));
    assert_eq!(groups.create(Some(top), None), Err(GroupError::TooMany));
    let last = GroupId::new(GROUPS_MAX as u16).unwrap();
    groups.remove(last).unwrap();
    assert_eq!(groups.create(Some(top), None), Ok(last), "a failed one counts for nothing");
    assert_eq!((GroupId::new(0), GroupId::new(GROUPS_MAX as u16 + 1)), (None, None));
}

#[test]
fn an_allocation_beyond_the_groups_limit_is_undone_and_counted() {
    let (swap, groups) = (engine(8), Accounts::new());
    plain(&swap, 2048);
    let group = groups.create(None, Some(20)).unwrap();
    let first = take_for(&swap, &groups, group, 4, 1).unwrap();
    assert_eq!(take_for(&swap, &groups, group, 3, 2), Err(AllocError::ChargeRefused));
    let stats = GroupStats { used: 16, limit: Some(20), refused: 1, failed: 1 };
    assert_eq!((groups.stats(group), swap.stats().inuse), (stats, 16));
    groups.set_limit(group, None);
    let whole = (2..).take_while(|&folio| take_for(&swap, &groups, group, 9, folio).is_ok()).count() as u64;
    assert!(whole >= 2);
    assert_eq!(groups.stats(group).failed, 2, "one that finds no slots counts too");
    assert_eq!(give_back(&swap, &groups, first, 4, 1), 1);
    assert_eq!(used(&groups, group), 512 * whole);
}

#[test]
fn uncharging_groups_consecutive_slots_with_one_group_id() {
    let (swap, groups) = (engine(4), Accounts::new());
    plain(&swap, 2048);
    let ids = [groups.create(None, None).unwrap(), groups.create(None, None).unwrap()];
    let hold = |number: u32, group: GroupId| {
        let entry = take_for(&swap, &groups, group, 0, number).unwrap();
        uncache(&swap, entry, 0, number);
        entry
    };
    let pattern = [0, 0, 0, 1, 1, 0, 1, 1, 1, 1];
    let entries: Vec<_> = (0..).zip(pattern).map(|(number, which)| hold(number, ids[which])).collect();
    assert!(entries.windows(2).all(|pair| pair[0].checked_add(1) == Some(pair[1])), "one after the other");
    assert_eq!(ids.map(|id| used(&groups, id)), [4, 6]);
    assert_eq!(put_slots(&swap, &groups, entries[0], pattern.len() as u32), 4, "four runs");
    assert_eq!(ids.map(|id| used(&groups, id)), [0, 0]);
}

#[test]
fn a_slot_stays_charged_until_nobody_holds_it_and_no_folio_is_cached() {
    let (swap, groups) = (engine(2), Accounts::new());
    plain(&swap, 1024);
    let group = groups.create(None, None).unwrap();
    let entry = take_for(&swap, &groups, group, 2, 1).unwrap();
    swap.dup(entry, 4).unwrap();
    assert_eq!((put_slots(&swap, &groups, entry, 4), used(&groups, group)), (0, 4));
    assert_eq!((put_slots(&swap, &groups, entry, 4), used(&groups, group)), (0, 4), "only cached");
    let mut uncharge = Uncharge::new(&groups);
    swap.cache_remove(entry, 4, FolioId(1), Shadow::EMPTY, |freed, payload| {
        // SAFETY: taken with `ChargeTo`.
        unsafe { uncharge.freed(freed, payload) }
    })
    .unwrap();
    drop(uncharge);
    assert_eq!(used(&groups, group), 0);
}

#[test]
fn a_large_folio_is_not_brought_in_over_slots_of_two_groups() {
    let (swap, groups) = (engine(2), Accounts::new());
    plain(&swap, 1024);
    let ids = [groups.create(None, None).unwrap(), groups.create(None, None).unwrap()];
    // Slots 8 to 11 and 14, 15 are the first group's, 12 and 13 the second's.
    let single = |number: u32, which: usize| {
        let entry = take_for(&swap, &groups, ids[which], 0, number).unwrap();
        uncache(&swap, entry, 0, number);
        entry
    };
    let entries: Vec<_> = (1..16).map(|slot| single(slot, usize::from(slot == 12 || slot == 13))).collect();
    let at = |slot: usize| entries[slot - 1];
    assert!((1..16).all(|slot| at(slot).offset() == slot as u64));
    let insert = |slot, size| swap.cache_insert_charged(at(slot), order(size), FolioId(100));
    let range = |slot: usize, size: u32| insert(slot, size).map(|inserted| inserted.first);
    assert_eq!(range(14, 3), Err(InsertError::Busy));
    assert_eq!(range(12, 2), Err(InsertError::Busy));
    assert_eq!(range(10, 2), Ok(at(8)), "four of one group");
    assert_eq!(range(12, 1), Ok(at(12)), "two of the other");
    assert_eq!(range(15, 0), Ok(at(15)), "one");
    swap.validate().unwrap();
}

#[test]
fn a_groups_devices_change_while_it_runs_and_are_never_more_than_its_parents() {
    let (swap, groups) = (engine(32), Accounts::new());
    let on =
        |priority| swap.swapon(DeviceSpec { priority: Some(priority), ..DeviceSpec::new(4096) }).unwrap();
    let [fast, slow, other_slow] = [9, 3, 3].map(on);
    let tiers: Vec<_> = swap.tiers().collect();
    assert_eq!(tiers, [(9, DeviceMask::only(fast)), (3, DeviceMask::only(slow).with(other_slow))]);
    let top = groups.create(None, None).unwrap();
    let below = groups.create(Some(top), None).unwrap();
    assert_eq!(groups.devices(below), DeviceMask::ALL);
    let used = |group: GroupId, folio| {
        let hooks = ChargeTo { groups: &groups, group, slots: &swap.slots, inner: NoHooks };
        let mask = groups.devices(group);
        swap.alloc_folio_with(CPU0, order(2), FolioId(folio), mask, &hooks).map(|entry| entry.device())
    };
    assert_eq!(used(below, 1), Ok(fast));
    // The hint of this CPU still leads to the fast device.
    groups.set_devices(below, tiers[1].1);
    assert!(tiers[1].1.contains(used(below, 2).unwrap()));
    groups.set_devices(top, DeviceMask::only(slow));
    assert_eq!((used(top, 4), used(below, 5)), (Ok(slow), Ok(slow)));
    groups.set_devices(below, DeviceMask::only(fast));
    assert_eq!(groups.devices(below), DeviceMask::NONE, "its own alone, which its parent does not permit");
    assert_eq!(used(below, 6), Err(AllocError::NoSpace));
    groups.set_devices(top, DeviceMask::ALL);
    assert_eq!(used(below, 7), Ok(fast));
    // A new group in the place of an old one may use all.
    let again = groups.create(None, None).unwrap();
    groups.set_devices(again, DeviceMask::NONE);
    groups.remove(again).unwrap();
    assert_eq!(groups.devices(groups.create(None, None).unwrap()), DeviceMask::ALL);
}

#[test]
fn a_group_is_full_when_any_above_it_is_half_used() {
    let (swap, groups) = (engine(8), Accounts::new());
    plain(&swap, 4096);
    let top = groups.create(None, Some(64)).unwrap();
    let (left, right) =
        (groups.create(Some(top), Some(1000)).unwrap(), groups.create(Some(top), None).unwrap());
    let full = |group| groups.vm_swap_full(group, &swap);
    take_for(&swap, &groups, left, 4, 1).unwrap();
    assert_eq!([top, left, right].map(full), [false; 3]);
    take_for(&swap, &groups, left, 4, 2).unwrap();
    assert_eq!([top, left, right].map(full), [true; 3], "32 of 64");
    groups.set_limit(top, None);
    assert_eq!([top, left, right].map(full), [false; 3]);
    for number in 3..8 {
        take_for(&swap, &groups, right, 9, number).unwrap();
    }
    assert!(swap.vm_swap_full() && full(left), "more than half of all slots");
}

#[test]
fn threads_at_a_common_limit_never_have_more_and_leave_nothing_charged() {
    let (swap, groups) = (engine(16), Accounts::new());
    plain(&swap, 8192);
    let top = groups.create(None, Some(200)).unwrap();
    let rounds = if cfg!(miri) { 30 } else { 20_000 };
    std::thread::scope(|scope| {
        for worker in 0..3u32 {
            let (swap, groups) = (&swap, &groups);
            scope.spawn(move || {
                let own = groups.create(Some(top), Some(120)).unwrap();
                let mut held = Vec::new();
                let mut random = Random::new(u64::from(worker) + 7);
                for round in 0..rounds {
                    let (size, folio) = (random.below(5) as u32, worker * 1_000_000 + round);
                    match take_for(swap, groups, own, size, folio) {
                        Ok(entry) => held.push((entry, size, folio)),
                        Err(AllocError::ChargeRefused) => {}
                        Err(error) => panic!("{error}"),
                    }
                    let sum: u64 = held.iter().map(|&(_, size, _)| 1 << size).sum();
                    assert!(sum <= 120);
                    while random.below(2) == 0 && !held.is_empty() {
                        let (entry, size, folio) = held.swap_remove(random.below(held.len() as u64) as usize);
                        give_back(swap, groups, entry, size, folio);
                    }
                }
                for (entry, size, folio) in held {
                    give_back(swap, groups, entry, size, folio);
                }
                assert_eq!(used(groups, own), 0);
                groups.remove(own).unwrap();
            });
        }
    });
    assert_eq!(used(&groups, top), 0);
    groups.remove(top).unwrap();
    assert_eq!(swap.validate().unwrap().inuse, 0);
}

/// Steps of an owner, an order, a kind (3: a free) and the folio that a free picks.
fn steps() -> impl Strategy<Value = Vec<(usize, u32, u8, prop::sample::Index)>> {
    let step = (0usize..4, 0u32..5, 0u8..4, any::<prop::sample::Index>());
    prop::collection::vec(step, 1..if cfg!(miri) { 24 } else { 120 })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Against a list of the slots of each group.
    #[test]
    fn accounts_are_what_the_oracle_says(steps in steps()) {
        let (swap, groups) = (engine(8), Accounts::new());
        plain(&swap, 4096);
        let top = groups.create(None, Some(150)).unwrap();
        let mut ids = vec![top];
        for (parent, limit) in [(0, Some(100)), (1, Some(60)), (0, None)] {
            ids.push(groups.create(Some(ids[parent]), limit).unwrap());
        }
        let (above, limits) = ([&[0][..], &[1, 0], &[2, 1, 0], &[3, 0]], [150, 100, 60, u64::MAX]);
        let mut held: Vec<(SwapEntry, u32, u32, usize)> = Vec::new();
        for (folio, (who, size, kind, which)) in (1..).zip(steps) {
            let mut expected = [0u64; 4];
            for &(_, size, _, owner) in &held {
                above[owner].iter().for_each(|&group| expected[group] += 1 << size);
            }
            prop_assert_eq!([0, 1, 2, 3].map(|index| used(&groups, ids[index])), expected);
            if kind < 3 {
                let fits = above[who].iter().all(|&group| expected[group] + (1 << size) <= limits[group]);
                let taken = take_for(&swap, &groups, ids[who], size, folio);
                prop_assert_eq!(taken.is_ok(), fits, "{:?}", taken);
                held.extend(taken.map(|entry| (entry, size, folio, who)));
            } else if !held.is_empty() {
                let (entry, size, folio, _) = held.swap_remove(which.index(held.len()));
                prop_assert_eq!(give_back(&swap, &groups, entry, size, folio), 1);
            }
        }
        let mut by_owner = HashMap::new();
        for (entry, size, folio, who) in held {
            *by_owner.entry(who).or_insert(0) += give_back(&swap, &groups, entry, size, folio);
        }
        prop_assert_eq!(ids.iter().map(|&id| used(&groups, id)).sum::<u64>(), 0);
        prop_assert_eq!(swap.validate().unwrap().inuse, 0);
    }
}
