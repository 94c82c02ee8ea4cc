use super::{
    Need::{Enough, More},
    *,
};
use folioswap_test_support::random::Random;

const MIB: u64 = 1 << 20;

fn party(weight: u32, need: Need) -> Party {
    Party { weight, least: 8 * MIB, need }
}

/// Shares so many MiB.
fn shared(total: u64, parties: &[Party]) -> Vec<u64> {
    allot(total * MIB, parties).into_iter().map(|bytes| bytes / MIB).collect()
}

#[test]
fn those_that_need_more_share_by_weight() {
    assert_eq!(shared(1000, &[party(100, More)]), [1000]);
    assert_eq!(shared(1000, &[party(300, More), party(100, More)]), [750, 250]);
    assert_eq!(shared(96, &[party(300, More), party(100, More)]), [72, 24], "to the byte");
    assert_eq!(shared(96, &[party(900, More)]), [96]);
    assert_eq!(shared(1000, &[party(1, More), party(10_000, More)]), [8, 992], "each keeps the least");
    assert!(shared(1000, &[]).is_empty());
}

#[test]
fn what_one_does_not_need_the_others_get() {
    let small = party(300, Enough(100 * MIB));
    assert_eq!(shared(1000, &[small, party(100, More)]), [100, 900]);
    assert_eq!(shared(1000, &[small, party(100, More), party(200, More)]), [100, 300, 600]);
    // It needs more than its share, and keeps that.
    let large = party(300, Enough(900 * MIB));
    assert_eq!(shared(1000, &[large, party(100, More)]), [750, 250]);
}

#[test]
fn what_nobody_needs_is_room_for_growth_by_weight() {
    let parties = [party(300, Enough(100 * MIB)), party(100, Enough(100 * MIB))];
    assert_eq!(shared(1000, &parties), [700, 300]);
}

#[test]
fn what_cannot_leave_stays_also_where_it_is_more_than_there_is() {
    let stuck = Party { weight: 1, least: 600 * MIB, need: Enough(600 * MIB) };
    assert_eq!(shared(1000, &[stuck, party(100, More)]), [600, 400]);
    assert_eq!(shared(500, &[stuck, party(100, More)]), [600, 8]);
}

/// A least part that is more than a small share is no cap once others leave what they do not need.
#[test]
fn a_least_part_is_no_cap() {
    assert_eq!(shared(8192, &[party(1, More), party(10_000, Enough(200 * MIB))]), [7992, 200]);
    let large = Party { weight: 100, least: 600 * MIB, need: More };
    assert_eq!(shared(1000, &[large, party(300, Enough(100 * MIB))]), [900, 100]);
}

/// Whatever takes part: nobody has less than the least part, the sum is right, of two that need
/// more the heavier has no less, and nobody has more than it needs while another needs more.
#[test]
fn random_parties_get_what_is_theirs() {
    let mut random = Random::new(7);
    for _ in 0..2000 {
        let count = 1 + random.below(9);
        let parties: Vec<Party> = (0..count)
            .map(|_| Party {
                weight: 1 + random.below(10_000) as u32,
                least: random.below(1 << 26),
                need: if random.below(2) == 0 { More } else { Enough(random.below(1 << 31)) },
            })
            .collect();
        let total = random.below(1 << 32);
        let given = allot(total, &parties);
        let least: u64 = parties.iter().map(|party| party.least).sum();
        let sum: u64 = given.iter().sum();
        assert!(sum <= total.max(least) && sum.saturating_add(count << 20) >= total, "{total}: {parties:?}");
        let are_short = parties.iter().any(|party| party.need == More);
        for (one, bytes) in parties.iter().zip(&given) {
            assert!(*bytes >= one.least);
            if let Enough(need) = one.need {
                assert!(!are_short || *bytes <= need.max(one.least), "{total}: {parties:?}");
            }
            for (other, others) in parties.iter().zip(&given) {
                let are_both_short = one.need == More && other.need == More;
                let is_lighter = one.weight >= other.weight && one.least >= other.least;
                assert!(!(are_both_short && is_lighter) || bytes.saturating_add(1 << 20) >= *others);
            }
        }
    }
}

#[test]
fn figures_of_a_liar_do_not_overflow() {
    let liar = Party { weight: u32::MAX, least: u64::MAX, need: Enough(u64::MAX) };
    assert_eq!(allot(1 << 40, &[liar, liar, party(1, More)]), [u64::MAX, u64::MAX, 8 * MIB]);
    assert_eq!(allot(u64::MAX, &[liar]), [u64::MAX]);
    assert_eq!(allot(0, &[party(1, Enough(0))]), [8 * MIB]);
}
