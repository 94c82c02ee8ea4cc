use super::*;
use std::collections::VecDeque;
use std::vec::Vec;

#[test]
fn a_shadow_keeps_its_age() {
    for age in [0, 1, 77, AGE_MASK] {
        assert_eq!(age_of(shadow_of(age)), Some(age));
        assert_ne!(shadow_of(age), Shadow::EMPTY);
    }
    assert_eq!(age_of(shadow_of(AGE_MASK + 6)), Some(5), "the low bits");
    assert_eq!(age_of(Shadow::EMPTY), None);
}

#[test]
fn the_distance_is_what_left_or_was_activated_meanwhile() {
    let workingset = Workingset::default();
    workingset.set_active(100);
    workingset.set_room(10);
    assert_eq!(workingset.refault(workingset.distance(Shadow::EMPTY)), Refault::Unknown);
    let shadow = workingset.shadow();
    for (evicted, activated, expected) in [
        (0, 0, Refault::Spared),
        (6, 4, Refault::Spared),
        (1, 0, Refault::Active),
        (80, 9, Refault::Active),
        (0, 1, Refault::Far),
    ] {
        workingset.evicted(evicted);
        workingset.activated(activated);
        assert_eq!(workingset.refault(workingset.distance(shadow)), expected, "{evicted} {activated}");
    }
}

#[test]
fn an_age_that_wraps_has_distances_all_the_same() {
    let workingset = Workingset::default();
    workingset.set_active(100);
    workingset.evicted(AGE_MASK - 20);
    let shadow = workingset.shadow();
    workingset.evicted(50);
    assert_eq!(workingset.refault(workingset.distance(shadow)), Refault::Active);
    assert!(workingset.is_sound(shadow));
    workingset.evicted(51);
    assert_eq!(workingset.refault(workingset.distance(shadow)), Refault::Far);
}

#[test]
fn a_shadow_from_the_future_is_not_sound() {
    let workingset = Workingset::default();
    workingset.evicted(5);
    assert!(workingset.is_sound(Shadow::EMPTY) && workingset.is_sound(shadow_of(5)));
    assert!(!workingset.is_sound(shadow_of(6)));
    assert!(!workingset.is_sound(Shadow::new(0b10).unwrap()), "an age without its mark");
}

#[test]
fn what_comes_back_is_counted_once_and_activations_age_the_rest() {
    let workingset = Workingset::default();
    workingset.set_active(4);
    workingset.set_room(2);
    let mut refaults = Refaults::default();
    let all = [Refault::Unknown, Refault::Far, Refault::Active, Refault::Spared];
    all.into_iter().for_each(|one| refaults.add(one));
    assert_eq!(refaults, Refaults { pages: 3, activated: 2, spared: 1 });
    let shadow = workingset.shadow();
    workingset.came_back(refaults);
    assert_eq!((workingset.spared(), age_of(workingset.shadow())), (1, Some(2)));
    assert_eq!(workingset.refault(workingset.distance(shadow)), Refault::Spared);
}

/// Runs a loop over pages, in a memory that gives up the page used longest ago. Returns the
/// refaults of the second half.
fn loop_over(pages: usize, fit: usize) -> Refaults {
    let workingset = Workingset::default();
    workingset.set_active(fit as u64);
    let mut shadows: Vec<Option<Shadow>> = std::vec![None; pages];
    let (mut resident, mut is_resident) = (VecDeque::new(), std::vec![false; pages]);
    let mut refaults = Refaults::default();
    for step in 0..20 * pages {
        let page = step % pages;
        if is_resident[page] {
            continue;
        }
        if let Some(shadow) = shadows[page] {
            let mut one = Refaults::default();
            one.add(workingset.refault(workingset.distance(shadow)));
            workingset.came_back(one);
            if step > 10 * pages {
                refaults.pages += one.pages;
                refaults.activated += one.activated;
            }
        }
        is_resident[page] = true;
        resident.push_back(page);
        if resident.len() > fit {
            let left = resident.pop_front().unwrap();
            is_resident[left] = false;
            shadows[left] = Some(workingset.shadow());
            workingset.evicted(1);
        }
    }
    refaults
}

#[test]
fn a_loop_a_little_larger_than_memory_is_a_working_set_and_a_far_larger_one_is_a_scan() {
    let little = loop_over(1200, 1000);
    assert!(little.pages > 10_000 && little.activated == little.pages, "{little:?}");
    let far = loop_over(4000, 1000);
    assert!(far.pages > 10_000 && far.activated == 0, "{far:?}");
    assert_eq!(loop_over(1000, 1000), Refaults::default());
}
