//! The recorded build of Linux under memory pressure (`bench/traces`), replayed under every preset.

use folioswap_lab::policies::{Locks, PolicyName};
use folioswap_lab::replay::{Device, Medium, Odd, Prepared, Replay, Replayed, Retention, replay};
use folioswap_lab::text;
use folioswap_test_support::skipping;
use std::process::Command;

/// 64 kB.
const ORDER: usize = 4;

fn recorded() -> Option<Prepared> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/traces/linux-build.txt.xz");
    let Ok(unpacked) = Command::new("xz").args(["-dc", file]).output() else {
        skipping::note("there is no xz");
        return None;
    };
    assert!(unpacked.status.success(), "{}", String::from_utf8_lossy(&unpacked.stderr));
    let trace = text::read(unpacked.stdout.as_slice()).unwrap();
    Some(Prepared::new(&trace, Retention::Never).unwrap())
}

/// Replays on a zram device of which the build needs at most this part, percent.
fn on(prepared: &Prepared, policy: PolicyName, percent: u64) -> Replayed {
    let pages = Some(prepared.slots_peak * 100 / percent);
    let zram = Device { medium: Medium::Zram, pages, priority: None, synchronous: true, discard: false };
    let options =
        Replay { policy, devices: vec![zram], threads: 1, cpus: None, locks: Locks::Uncounted, moments: 0 };
    replay(prepared, &options).unwrap()
}

#[test]
fn every_preset_carries_the_whole_build_out() {
    let Some(prepared) = recorded() else { return };
    assert_eq!(prepared.odd, Odd::default(), "the recording is whole");
    for policy in PolicyName::ALL {
        let replayed = on(&prepared, *policy, 78);
        assert_eq!(replayed.operations, 105_052, "{policy}");
        assert_eq!((replayed.allocated[0], replayed.allocated[ORDER]), (57_731, 8_746), "{policy}");
        assert_eq!(replayed.fallback, [0; 10], "{policy}");
    }
}

/// A device that the build nearly fills: folios of 64 kB find no room until series 2 leaves fewer
/// clusters begun, and series 1 looks at partly used clusters first; no page is without a slot.
#[test]
fn on_a_device_that_is_nearly_full_fewer_folios_fail_with_each_series() {
    let Some(prepared) = recorded() else { return };
    let failed = |policy| {
        let replayed = on(&prepared, policy, 97);
        assert_eq!(replayed.fallback[0], 0, "{policy}");
        replayed.fallback[ORDER]
    };
    let (first, without_cache) = (failed(PolicyName::Linux6_9), failed(PolicyName::Linux6_15));
    assert!(first > without_cache && without_cache > 0, "6.9: {first}, 6.15: {without_cache}");
    for policy in [PolicyName::Linux6_18, PolicyName::Linux6_19, PolicyName::Current] {
        assert_eq!(failed(policy), 0, "{policy}");
    }
}
