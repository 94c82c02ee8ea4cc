//! The experiment of series 5, small: each variant's behaviour, by its counts.

use folioswap_lab::experiments::shmem_swapin::*;
use folioswap_report::Show;

#[test]
fn each_variant_does_what_its_patches_say() {
    let options = Options { mib: 8, rounds: 1 };
    let outcomes = run(&options, Show::No).unwrap();
    let sample = |variant: &str, supply: Supply| {
        let is = |outcome: &&Outcome| {
            outcome.variant == variant && outcome.supply == supply && outcome.entries == Entries::Huge
        };
        outcomes.iter().find(is).unwrap().samples[0]
    };
    let all = ["before", "after 1", "after 2", "after 5", "after 7", "all", "today"];
    for variant in all {
        let sample = sample(variant, Supply::Plenty);
        assert_eq!((sample.swapins, sample.large, sample.splits), (4, 4, 0), "{variant}: {sample:?}");
        assert_eq!(sample.major_faults, 4, "{variant}: {sample:?}");
    }
    let walks = all.map(|variant| sample(variant, Supply::Plenty).walks_each());
    assert_eq!(walks, [4.0, 3.0, 3.0, 3.0, 3.0, 3.0, 1.0]);
    for variant in ["before", "after 1", "after 2"] {
        let sample = sample(variant, Supply::EverySecond);
        assert!(sample.read_ahead > 0, "{variant} goes through the cache: {sample:?}");
    }
    // Today each smaller order is tried: two halves come back for each folio refused.
    let today = sample("today", Supply::EverySecond);
    assert!(today.read_ahead == 0 && today.fallbacks == 2, "{today:?}");
    assert!(today.swapins == 2 * 2 + 2 && today.major_faults == today.swapins, "{today:?}");
    for variant in all {
        let sample = sample(variant, Supply::Never);
        assert_eq!((sample.large, sample.swapins), (0, 4 * 512), "{variant}: {sample:?}");
        let cached = ["before", "after 1", "after 2"].contains(&variant);
        assert_eq!(sample.read_ahead > 0, cached, "{variant}: {sample:?}");
    }
    for outcome in outcomes.iter().filter(|outcome| outcome.entries == Entries::Kb64) {
        let sample = outcome.samples[0];
        let expected = if outcome.supply == Supply::Plenty { 128 } else { sample.large };
        assert_eq!(sample.large, expected, "{outcome:?}");
        assert!(outcome.supply != Supply::Never || sample.large == 0, "{outcome:?}");
    }
    for variant in ["after 5", "after 7", "all"] {
        let sample = sample(variant, Supply::EverySecond);
        assert!(sample.read_ahead == 0 && sample.fallbacks == 2, "{variant}: {sample:?}");
        assert!(
            sample.swapins == 2 * 512 + 2 && sample.major_faults == sample.swapins,
            "{variant}: {sample:?}"
        );
    }
    let text = report(&options, &outcomes).text();
    for part in ["10.66", "9.78", "walks for each swap-in", "Not comparable:"] {
        assert!(text.contains(part), "{text}");
    }
}
