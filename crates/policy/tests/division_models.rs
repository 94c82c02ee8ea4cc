//! Models of direct reclaim under loom: the evictor and a thread that waits for memory write the
//! same batch of berths back.
//!
//! These must hold: no berth is written by both, each is written exactly once before the evictor
//! ends it, and when the evictor has withdrawn its offer and has no helper, no thread touches a
//! berth any more.

use folioswap_policy::reclaim::division::{Division, Next};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering::*};
use loom::thread;

const BERTHS: u16 = 3;

struct Batch {
    word: AtomicU64,
    /// How often each berth was written; loom finds two writes at a time.
    written: [UnsafeCell<u32>; BERTHS as usize],
}

// SAFETY: the models are to show that accesses exclude each other.
unsafe impl Sync for Batch {}

/// The way in which the evictor comes to a berth.
#[derive(Clone, Copy, PartialEq)]
enum Comes {
    /// Takes it, or waits for the helper.
    Right,
    /// Wrong: does not wait for the helper that is at it.
    WithoutWaiting,
}

impl Batch {
    fn exchange(&self, old: Division, new: Division) -> bool {
        self.word.compare_exchange(old.bits(), new.bits(), AcqRel, Acquire).is_ok()
    }

    fn load(&self) -> Division {
        Division::from_bits(self.word.load(Acquire))
    }

    fn help(&self) {
        for _ in 0..BERTHS {
            let word = self.load();
            let Some((taken, number)) = word.help() else { return };
            if !self.exchange(word, taken) {
                continue;
            }
            // SAFETY: the helper has taken it.
            self.written[usize::from(number)].with_mut(|count| unsafe { *count += 1 });
            self.update(|word| Some(word.helped_out()));
        }
    }

    fn update(&self, next: impl Fn(Division) -> Option<Division>) {
        loop {
            let word = self.load();
            match next(word) {
                Some(after) if self.exchange(word, after) => return,
                _ => thread::yield_now(),
            }
        }
    }

    fn take(&self, number: u16, comes: Comes) {
        loop {
            let word = self.load();
            match word.next(number) {
                Next::Mine(after) => {
                    if self.exchange(word, after) {
                        return;
                    }
                }
                Next::MineAlready => return,
                Next::Helped if comes == Comes::WithoutWaiting => return,
                Next::Helped => thread::yield_now(),
            }
        }
    }

    /// Offers the berths that follow the `offered` first, once all of those are begun and no helper
    /// is at one. Returns how many are offered then.
    fn offer_more(&self, offered: u16) -> u16 {
        let word = self.load();
        if word.help().is_some() || word.helped().is_some() {
            return offered;
        }
        self.update(|word| word.offer(offered, BERTHS - offered));
        BERTHS
    }

    /// Offers `first` berths, and the others when nothing is left of these.
    fn evict(&self, comes: Comes, first: u16) {
        self.update(|word| word.offer(0, first));
        let mut offered = first;
        // The last berth is left for the next batch.
        for number in 0..BERTHS - 1 {
            if offered < BERTHS {
                offered = self.offer_more(offered);
            }
            self.take(number, comes);
            // SAFETY: the evictor has taken it, or the helper is done with it.
            self.written[usize::from(number)].with_mut(|count| unsafe {
                *count = (*count).max(1);
                assert_eq!(*count, 1);
            });
        }
        self.update(|word| Some(word.withdraw()));
        while self.load().helped().is_some() {
            thread::yield_now();
        }
        // SAFETY: there is no helper any more.
        self.written[usize::from(BERTHS) - 1].with(|count| assert!(unsafe { *count } <= 1));
    }
}

fn model(comes: Comes, first: u16) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(4);
    builder.check(move || {
        let batch =
            Arc::new(Batch { word: AtomicU64::new(0), written: [(); 3].map(|()| UnsafeCell::new(0)) });
        let helper = {
            let batch = batch.clone();
            thread::spawn(move || batch.help())
        };
        batch.evict(comes, first);
        helper.join().unwrap();
    });
}

#[test]
fn each_folio_is_written_once() {
    model(Comes::Right, BERTHS);
}

#[test]
fn each_folio_is_written_once_where_more_is_offered_later() {
    model(Comes::Right, 1);
}

#[test]
#[should_panic(expected = "Concurrent write accesses to `UnsafeCell`")]
fn an_evictor_that_does_not_wait_is_caught() {
    model(Comes::WithoutWaiting, BERTHS);
}
