//! Hazard slots under loom: the crate's own source, with loom's atomics, and with each fence left
//! out in turn, which the model must notice.
#![allow(dead_code, missing_docs)]
// The same file is there three times on purpose.
#![allow(clippy::duplicate_mod)]

/// The file with all fences, or with one of them left out.
macro_rules! with_fences {
    ($name:ident, $call:expr, $evictor:expr) => {
        #[path = "."]
        mod $name {
            pub mod sync {
                pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
                pub fn fence_of_a_call() {
                    if $call {
                        loom::sync::atomic::fence(Ordering::SeqCst);
                    }
                }
                pub fn fence_of_the_evictor() {
                    if $evictor {
                        loom::sync::atomic::fence(Ordering::SeqCst);
                    }
                }
                pub fn pause(_round: u32) {
                    loom::thread::yield_now();
                }
            }
            #[path = "../../src/hazard.rs"]
            pub mod hazard;

            use hazard::{Announcer, Hazards, Pages, Published, SlotIndex};
            use loom::sync::Arc;
            use std::sync::atomic::Ordering::Relaxed;
            use sync::{AtomicU32, AtomicU64};

            const PAGE: u64 = 7;

            /// A page, a call that uses it, and an evictor that wants it: the page must be there
            /// from the call's touch to its end.
            pub fn a_page_stays_while_a_call_uses_it(holds_all: bool) {
                loom::model(move || {
                    let hazards = Arc::new(Hazards::<1> {
                        slots: [Published {
                            ranges: std::array::from_fn(|_| AtomicU64::new(0)),
                            holds_all: AtomicU32::new(0),
                            is_lent: AtomicU32::new(0),
                        }],
                        peak: AtomicU32::new(0),
                        announced: std::array::from_fn(|_| AtomicU64::new(0)),
                        crowd: AtomicU32::new(0),
                    });
                    // The page is away, or a call uses it: never both. Plain atomics: the model
                    // of the page has no order of its own.
                    let used = Arc::new(std::sync::atomic::AtomicBool::new(false));
                    let evictor = {
                        let (hazards, used) = (hazards.clone(), used.clone());
                        loom::thread::spawn(move || {
                            let page = Pages::around(PAGE << 12, 1).expect("a page");
                            hazards.announce(Announcer::Second, page);
                            let mut is_held = false;
                            hazards
                                .for_held(page, |held| is_held |= (held.first()..held.end()).contains(&PAGE));
                            if !is_held {
                                assert!(!used.load(Relaxed), "the page is in use");
                                loom::thread::yield_now();
                                assert!(!used.load(Relaxed), "the page is in use");
                            }
                            hazards.withdraw(Announcer::Second);
                        })
                    };
                    let slot = SlotIndex(0);
                    if holds_all {
                        hazards.hold_all(slot);
                    } else {
                        hazards.publish(slot, Pages::around(PAGE << 12, 100).expect("a page"));
                    }
                    used.store(true, Relaxed);
                    loom::thread::yield_now();
                    used.store(false, Relaxed);
                    hazards.release(slot);
                    evictor.join().expect("the evictor ends");
                });
            }
        }
    };
}

with_fences!(whole, true, true);
with_fences!(without_the_calls, false, true);
with_fences!(without_the_evictors, true, false);

#[test]
fn no_page_of_a_published_range_is_taken_while_the_call_runs() {
    whole::a_page_stays_while_a_call_uses_it(false);
}

#[test]
fn no_page_is_taken_while_a_call_holds_all() {
    whole::a_page_stays_while_a_call_uses_it(true);
}

#[test]
#[should_panic(expected = "the page is in use")]
fn without_the_fence_of_a_call_the_model_fails() {
    without_the_calls::a_page_stays_while_a_call_uses_it(false);
}

#[test]
#[should_panic(expected = "the page is in use")]
fn without_the_fence_of_the_evictor_the_model_fails() {
    without_the_evictors::a_page_stays_while_a_call_uses_it(false);
}
