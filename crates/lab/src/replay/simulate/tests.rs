use super::*;
use crate::build::{BuildParameters, Scale, Sizes};
use crate::events::CostsFile;
use crate::generate;
use crate::policies::Locks;
use crate::replay::{Medium, Replay, Retention, replay};
use folioswap_slots::DeviceFlags;

fn prepared() -> Prepared {
    let parameters =
        BuildParameters { tasks: 24, ..BuildParameters::published(Sizes::All).scaled(Scale(16)) };
    let trace = generate::in_memory(&parameters, DeviceFlags::SYNCHRONOUS, 3).unwrap();
    Prepared::timed(&trace, Retention::Never).unwrap()
}

fn simulated(prepared: &Prepared, policy: PolicyName, program_time: f64) -> SimulatedReplayed {
    let zram =
        Device { medium: Medium::Zram, pages: None, priority: None, synchronous: true, discard: false };
    let costs = CostsFile::kept().costs;
    let (devices, nodes) = (vec![zram], OnNodes::default());
    let options = SimulatedReplay { policy, devices, nodes, costs, program_time, device_lock: 0.0 };
    simulate(prepared, &options).unwrap()
}

#[test]
fn every_policy_carries_the_whole_trace_out() {
    let prepared = prepared();
    for policy in PolicyName::ALL {
        let result = simulated(&prepared, *policy, 1.0);
        let zram =
            Device { medium: Medium::Zram, pages: None, priority: None, synchronous: true, discard: false };
        let options = Replay {
            policy: *policy,
            devices: vec![zram],
            threads: 1,
            cpus: None,
            locks: Locks::Uncounted,
            moments: 0,
        };
        let real = replay(&prepared, &options).unwrap();
        let pages = |counts: &[u64; ORDERS]| -> u64 {
            counts.iter().enumerate().map(|(order, count)| count << order).sum()
        };
        // CPUs overtake each other in simulated time, so orders that fail may differ; pages do not.
        assert_eq!(pages(&result.allocated), pages(&real.allocated), "{policy}");
        assert_eq!(result.devices[0].1, real.devices[0].1, "{policy}: slots left in use");
        assert!(result.simulation.times.system() > 0.0);
    }
}

#[test]
fn program_time_is_the_recorded_time_and_no_system_time() {
    let prepared = prepared();
    let with = simulated(&prepared, PolicyName::Current, 1.0).simulation.times;
    let without = simulated(&prepared, PolicyName::Current, 0.0).simulation.times;
    assert!(without.user == 0.0 && with.user > 0.0);
    assert!(with.elapsed > without.elapsed);
    // CPUs that always have a request meet more often.
    assert!(without.lock_wait > with.lock_wait, "{} and {}", without.lock_wait, with.lock_wait);
    assert!((with.pages - without.pages).abs() < 1e-9);
}

/// A lock within the only device serialises that part of the pages, and takes no more of them.
#[test]
fn pages_wait_for_the_lock_within_their_device() {
    let prepared = prepared();
    let costs = CostsFile::kept().costs;
    let zram =
        Device { medium: Medium::Zram, pages: None, priority: None, synchronous: true, discard: false };
    let run = |device_lock| {
        let (devices, nodes) = (vec![zram], OnNodes::default());
        let policy = PolicyName::Current;
        simulate(
            &prepared,
            &SimulatedReplay { policy, devices, nodes, costs, program_time: 0.0, device_lock },
        )
        .unwrap()
        .simulation
    };
    let (without, with) = (run(0.0), run(0.5));
    assert!((with.times.pages - without.times.pages).abs() < 1e-6 * without.times.pages);
    let inside = |lock: &&crate::events::LockWaits| lock.name == "inside device 0";
    assert!(without.locks.iter().find(inside).is_none());
    let lock = with.locks.iter().find(inside).unwrap();
    assert!(lock.held_s >= 0.499 * with.times.pages, "{} of {}", lock.held_s, with.times.pages);
    assert!(lock.wait_s > 0.0 && with.times.elapsed >= lock.held_s);
}
