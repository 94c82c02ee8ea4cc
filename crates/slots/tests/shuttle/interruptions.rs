//! swapoff ends at every step of the work that pins a device. Nothing is left to a scheduler: one thread runs the work once for each of its atomic
//! operations (plain relaxed loads and stores excepted, as in the models), and just before that operation the end of swapoff runs to its own end, as another thread might have run it there.
//!
//! Few random schedules put the whole end of swapoff between two discards; here each such place has its turn.

use crate::models::Engine;
use crate::*;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// What runs before one of the coming operations.
struct Interruption {
    /// Operations before it.
    steps: u32,
    action: Box<dyn FnOnce()>,
}

enum Run {
    /// The operations are shuttle's: it chooses the next thread.
    Scheduled,
    /// One thread.
    Alone(Option<Interruption>),
}

thread_local! {
    static RUN: RefCell<Run> = const { RefCell::new(Run::Scheduled) };
}

/// An atomic operation is next. False if it is for shuttle to decide what comes before it.
pub(crate) fn step() -> bool {
    let action = RUN.with_borrow_mut(|run| {
        let Run::Alone(plan) = run else { return None };
        match plan {
            Some(interruption) if interruption.steps > 0 => {
                interruption.steps -= 1;
                Some(None)
            }
            // Taken out first: the operations of the interruption itself are not interrupted.
            _ => Some(plan.take().map(|interruption| interruption.action)),
        }
    });
    match action {
        None => false,
        Some(action) => {
            if let Some(action) = action {
                action();
            }
            true
        }
    }
}

/// A lock stays taken. False if shuttle has other threads that may release it.
pub(crate) fn relax() -> bool {
    let alone = RUN.with_borrow(|run| matches!(run, Run::Alone(_)));
    assert!(!alone, "the end of swapoff is past the pin: it waits for a lock of the work that it interrupts");
    false
}

/// What `swapoff_finish` said at one step.
type Finished = Result<(), SwapoffError>;

/// Runs `work` on a device that `prepare` left in swapoff, again and again, with `swapoff_finish` before its first, second, ... operation until there is no such
/// operation. Hands `(what swapoff_finish said, what work returned)` to `judge` each time; the device must be gone or go afterwards and nothing be lost.
/// Returns the number of operations.
fn interrupt_everywhere<T>(
    prepare: impl Fn(&Engine) -> DeviceId,
    work: impl Fn(&Engine, DeviceId) -> T,
    judge: impl Fn(&Finished, T),
) -> u32 {
    RUN.set(Run::Alone(None));
    for steps in 0.. {
        let engine = Rc::new(Engine::new(4));
        let id = prepare(&engine);
        let finished = Rc::new(Cell::new(None));
        let (inner, result) = (engine.clone(), finished.clone());
        let action = Box::new(move || result.set(Some(inner.swap.swapoff_finish(id))));
        RUN.set(Run::Alone(Some(Interruption { steps, action })));
        let outcome = work(&engine, id);
        RUN.set(Run::Alone(None));
        let Some(finished) = finished.take() else {
            RUN.set(Run::Scheduled);
            return steps;
        };
        judge(&finished, outcome);
        if finished.is_err() {
            assert_eq!(engine.swap.swapoff_finish(id), Ok(()), "step {steps}");
        }
        engine.swap.validate().unwrap();
        assert_eq!(engine.swap.frames_free(), engine.swap.frames_total(), "step {steps}");
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
            // Before the pin: there is no device any more to discard on.
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
        // Two full clusters, both only cached: the second reclaim leaves the device empty while its cluster is off-list.
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
            // Asked before the pin: slots in use keep the device on.
            Err(SwapoffError::Busy(inuse)) => assert!(*inuse > 0 && freed == 1024),
            Err(error) => {
                assert_eq!((*error, freed), (SwapoffError::Pinned, 1024));
                pinned.set(pinned.get() + 1);
            }
        },
    );
    assert!(pinned.get() > 0, "no step after the last slot was freed");
}
