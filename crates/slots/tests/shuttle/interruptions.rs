//! The end of swapoff at every step of the work that pins a device. No scheduler is needed: one
//! thread runs the work once for each of its atomic operations (plain relaxed loads and stores
//! excepted, as in the models). Just before that operation the end of swapoff runs to its own end,
//! as another thread might have run it there.
//!
//! Few random schedules put the whole end of swapoff between two discards; here each such place has
//! its turn.

use crate::models::Engine;
use crate::*;
use folioswap_test_support::schedule::{alone, interrupted};
use std::cell::Cell;
use std::rc::Rc;

/// Result of `swapoff_finish` at one step.
type Finished = Result<(), SwapoffError>;

/// Runs `work` on a device that `prepare` left in swapoff, again and again, with `swapoff_finish`
/// before its first, second, ... operation until there is no such operation. Gives the results of
/// `swapoff_finish` and of `work` to `judge` each time. Afterwards the device must be gone, or go
/// now, and nothing be lost. Returns the number of operations.
fn interrupt_everywhere<T>(
    prepare: impl Fn(&Engine) -> DeviceId,
    work: impl Fn(&Engine, DeviceId) -> T,
    judge: impl Fn(&Finished, T),
) -> u32 {
    for operation in 0.. {
        let engine = Rc::new(Engine::new(4));
        let id = alone(|| prepare(&engine));
        let finished = Rc::new(Cell::new(None));
        let (inner, result) = (engine.clone(), finished.clone());
        let finish = move || result.set(Some(inner.swap.swapoff_finish(id)));
        let outcome = interrupted(operation, finish, || work(&engine, id));
        let Some(finished) = finished.take() else { return operation };
        alone(|| {
            judge(&finished, outcome);
            if finished.is_err() {
                assert_eq!(engine.swap.swapoff_finish(id), Ok(()), "operation {operation}");
            }
            engine.swap.validate().unwrap();
            assert_eq!(engine.swap.frames_free(), engine.swap.frames_total(), "operation {operation}");
        });
    }
    unreachable!()
}

#[test]
fn swapoff_ends_at_every_step_of_discards() {
    struct Discards;
    impl Hooks for Discards {
        fn discard(&self, _: DeviceId, _: u64, _: u32) -> DiscardOutcome {
            DiscardOutcome::Done
        }
    }
    let prepare = |engine: &Engine| {
        let spec = DeviceSpec { flags: DeviceFlags::DISCARD, ..DeviceSpec::new(2048) };
        let id = engine.swap.swapon(spec).unwrap();
        let entries = [engine.take(0, 9, 1).unwrap(), engine.take(0, 9, 2).unwrap()];
        engine.give(entries[0], 9, 1);
        engine.give(entries[1], 9, 2);
        assert_eq!(engine.swap.discards_pending(id), 2);
        engine.swap.swapoff_begin(id).unwrap();
        id
    };
    let pinned = Cell::new(0);
    let steps = interrupt_everywhere(
        prepare,
        |engine, id| engine.swap.run_discards(id, &Discards),
        |finished, done| match finished {
            // It ran before the pin: there is no device any more to discard on.
            Ok(()) => assert_eq!(done, 0, "the device went while its clusters were discarded"),
            Err(error) => {
                assert_eq!(*error, SwapoffError::Pinned);
                pinned.set(pinned.get() + u32::from(done == 2));
            }
        },
    );
    assert!(
        pinned.get() > 20 && steps > pinned.get(),
        "{} of {steps} steps lie within both discards",
        pinned.get()
    );
}

#[test]
fn swapoff_ends_at_every_step_of_the_reclaim_of_full_clusters() {
    struct Reclaim<'a>(&'a Engine);
    impl Hooks for Reclaim<'_> {
        fn reclaim(&self, entry: SwapEntry, folio: FolioId) -> Reclaimed {
            let freed = self.0.swap.cache_remove(entry, 512, folio, Shadow::EMPTY, |_, _| {}).unwrap();
            Reclaimed::Freed(freed)
        }
    }
    let prepare = |engine: &Engine| {
        let id = engine.swap.swapon(DeviceSpec::new(2048)).unwrap();
        // Two full clusters are only cached: the second reclaim leaves the device empty while its
        // cluster is off-list.
        for folio in [1, 2] {
            let entry = engine.take(0, 9, folio).unwrap();
            assert_eq!(engine.swap.put(entry, 512, |_, _| {}).unwrap().only_cached, 512);
        }
        engine.swap.swapoff_begin(id).unwrap();
        id
    };
    let pinned = Cell::new(0);
    interrupt_everywhere(
        prepare,
        |engine, id| engine.swap.reclaim_full_clusters(id, FullClusters::All, &Reclaim(engine)),
        |finished, freed| match finished {
            Ok(()) => panic!("the device went while its full clusters were searched"),
            // It ran before the pin: slots in use keep the device on.
            Err(SwapoffError::Busy(inuse)) => assert!(*inuse > 0 && freed == 1024),
            Err(error) => {
                assert_eq!((*error, freed), (SwapoffError::Pinned, 1024));
                pinned.set(pinned.get() + 1);
            }
        },
    );
    assert!(pinned.get() > 0, "no step after the last slot was freed");
}
