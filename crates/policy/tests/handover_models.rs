//! Models of a plan that changes hands under loom: the evictor offers it, the handler takes one
//! step of it at a time, and the evictor takes it back at any moment.
//!
//! These must hold: no thread looks at the plan while another owns it, and each of its steps is
//! done exactly once, by either thread.

use folioswap_policy::reclaim::handover::{Handover, Rest};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering::*};
use loom::thread;

const STEPS: usize = 3;

struct Plan {
    word: AtomicU32,
    /// The steps that were done; loom finds two at a time.
    done: UnsafeCell<usize>,
}

// SAFETY: the models are to show that accesses exclude each other.
unsafe impl Sync for Plan {}

/// The way in which the evictor takes the plan back.
#[derive(Clone, Copy, PartialEq)]
enum Withdraws {
    Right,
    /// Wrong: does not wait for the taker.
    WithoutWaiting,
}

impl Plan {
    /// Exchanges the word for the one that `next` makes of it, if any. Returns whether it was
    /// exchanged.
    fn update(&self, next: impl Fn(Handover) -> Option<Handover>) -> bool {
        let word = Handover::from_bits(self.word.load(Acquire));
        let Some(after) = next(word) else { return false };
        self.word.compare_exchange(word.bits(), after.bits(), AcqRel, Acquire).is_ok()
    }

    fn move_some(&self) {
        for _ in 0..STEPS {
            if !self.update(Handover::take) {
                continue;
            }
            // SAFETY: the handler has taken the plan.
            let left = self.done.with_mut(|done| unsafe {
                *done += 1;
                STEPS - *done
            });
            let rest = if left > 0 { Rest::Some } else { Rest::None };
            assert!(self.update(|word| word.put_down(rest)), "nobody else puts it down");
        }
        self.update(Handover::decline);
    }

    fn evict(&self, withdraws: Withdraws) {
        assert!(self.update(Handover::offer));
        while !self.update(Handover::withdraw) {
            if withdraws == Withdraws::WithoutWaiting {
                break;
            }
            thread::yield_now();
        }
        // SAFETY: the evictor has withdrawn the plan.
        self.done.with_mut(|done| unsafe {
            assert!(*done <= STEPS);
            *done = STEPS;
        });
    }
}

fn model(withdraws: Withdraws) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(4);
    builder.check(move || {
        let plan = Arc::new(Plan { word: AtomicU32::new(0), done: UnsafeCell::new(0) });
        let handler = {
            let plan = plan.clone();
            thread::spawn(move || plan.move_some())
        };
        plan.evict(withdraws);
        handler.join().unwrap();
        // SAFETY: no other thread is left.
        plan.done.with(|done| assert_eq!(unsafe { *done }, STEPS, "none twice"));
        assert!(!plan.update(Handover::take), "nothing is offered any more");
    });
}

#[test]
fn the_plan_is_one_threads_at_a_time() {
    model(Withdraws::Right);
}

#[test]
#[should_panic(expected = "Concurrent write accesses to `UnsafeCell`")]
fn an_evictor_that_does_not_wait_is_caught() {
    model(Withdraws::WithoutWaiting);
}
