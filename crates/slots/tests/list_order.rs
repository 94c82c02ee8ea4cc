//! A policy's own order of lists (`list_order.rs`), and what an observer of locks hears
//! (`observe.rs`).

mod common;
use common::*;
use folioswap_slots::*;
use std::cell::RefCell;

/// Searches only partly used clusters, then free ones, for 64 kB; only free ones for the rest.
struct PartlyUsedFirst;

impl Policy for PartlyUsedFirst {
    type Relax = SpinOnly;
    const LIST_ORDER: ListOrder = ListOrder::Own;
    fn list_order(view: &DeviceView) -> Searches {
        assert_eq!((view.clusters, view.cpus, view.discards), (8, 4, false));
        if view.order.index() == 4 {
            [Some(Search::OneFragment), Some(Search::Nonfull), Some(Search::Free), None, None, None]
        } else {
            [Some(Search::Free), None, None, None, None, None]
        }
    }
}

fn device<P: Policy>() -> Bench<P> {
    let swap = engine_with::<P>(Config { cpus: 4, clusters_max: 64, frame_chunks_max: 8 }, 32);
    plain(&swap.slots, 8 * 512);
    swap
}

fn cluster_of(entry: SwapEntry) -> u64 {
    entry.offset() / u64::from(CLUSTER_SLOTS)
}

/// The cluster of a 64 kB allocation by another CPU, while one cluster of that order is partly used
/// and others are free.
fn second_cpu_shares<P: Policy>() -> bool {
    let swap = device::<P>();
    let first = take(&swap.slots, CPU0, 4, 1);
    let second = take(&swap.slots, CPU1, 4, 2);
    swap.validate().unwrap();
    cluster_of(first) == cluster_of(second)
}

#[test]
fn an_own_order_decides_which_list_is_searched_first() {
    assert!(!second_cpu_shares::<Current>(), "today a fragment cluster comes last");
    assert!(second_cpu_shares::<PartlyUsedFirst>());
}

#[test]
fn an_own_order_is_kept_by_the_variants_around_it() {
    assert!(second_cpu_shares::<CountLocks<PartlyUsedFirst>>());
    assert!(second_cpu_shares::<RelaxBy<Yield, FreeFirst<PartlyUsedFirst>>>());
}

#[test]
fn a_list_that_the_own_order_leaves_out_is_not_searched() {
    struct NeverFree;
    impl Policy for NeverFree {
        type Relax = SpinOnly;
        const LIST_ORDER: ListOrder = ListOrder::Own;
        fn list_order(_view: &DeviceView) -> Searches {
            [Some(Search::Nonfull), Some(Search::OneFragment), Some(Search::AllFragments), None, None, None]
        }
    }
    let swap = device::<NeverFree>();
    let refused = swap.alloc_folio(CPU0, order(4), FolioId(1), DeviceMask::ALL);
    assert_eq!(refused, Err(AllocError::SplitAndRetry));
}

#[test]
fn an_own_order_hears_what_the_lists_hold() {
    thread_local!(static SEEN: RefCell<Vec<DeviceView>> = const { RefCell::new(Vec::new()) });
    struct Looks;
    impl Policy for Looks {
        type Relax = SpinOnly;
        const LIST_ORDER: ListOrder = ListOrder::Own;
        fn list_order(view: &DeviceView) -> Searches {
            SEEN.with_borrow_mut(|seen| seen.push(*view));
            [Some(Search::Free), None, None, None, None, None]
        }
    }
    let swap = device::<Looks>();
    take(&swap.slots, CPU0, 4, 1);
    let entry = take(&swap.slots, CPU1, 4, 2);
    give(&swap.slots, take(&swap.slots, CPU1, 4, 3), 4, 3);
    assert_eq!(entry.slot_in_cluster(), 0);
    take(&swap.slots, LogicalCpu(2), 4, 4);
    let seen =
        SEEN.with_borrow(|seen| seen.iter().map(|v| (v.free, v.nonfull, v.fragments)).collect::<Vec<_>>());
    // Untouched; one cluster scanned; two, of which one had a slot freed. The header's cluster
    // counts as never used until the search for a free one has passed it.
    assert_eq!(seen, [(8, 0, 0), (6, 0, 1), (5, 1, 1)]);
}

thread_local!(static HEARD: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) });

/// Notes what it hears.
struct Listener;

fn hear(what: String) {
    HEARD.with_borrow_mut(|heard| heard.push(what));
}

fn heard() -> Vec<String> {
    HEARD.take()
}

impl Relax for Listener {
    fn relax(_round: u32) {}
    fn before_lock(lock: LockName) {
        hear(format!("want {lock:?}"));
    }
    fn before_try(lock: LockName) {
        hear(format!("try {lock:?}"));
    }
    fn locked(lock: LockName) {
        hear(format!("have {lock:?}"));
    }
    fn before_unlock(lock: LockName) {
        hear(format!("drop {lock:?}"));
    }
    fn step(step: Step) {
        hear(format!("{step:?}"));
    }
}

#[test]
fn an_observer_hears_locks_and_steps_in_their_order() {
    let swap = device::<RelaxBy<Listener, NonfullUnlessDiscard>>();
    heard();
    let entry = take(&swap.slots, CPU0, 4, 1);
    heard();
    // From this CPU's cluster: one lock, one look, sixteen slots.
    let next = take(&swap.slots, CPU0, 4, 2);
    let cluster = format!("Cluster {{ device: 0, index: {} }}", cluster_of(entry));
    let want = |cluster: &str| [format!("want {cluster}"), format!("have {cluster}")];
    let [wanted, had] = want(&cluster);
    assert_eq!(heard(), ["Allocate", &wanted, &had, "Look(16)", "Take(16)", &format!("drop {cluster}")]);
    uncache(&swap.slots, next, 4, 2);
    heard();
    swap.put(next, 16, |_, _| {}).unwrap();
    // The cluster moves from its FRAG list to NONFULL.
    let lists = "Lists { device: 0 }";
    assert_eq!(
        heard(),
        [
            &*wanted,
            &had,
            "Free(16)",
            &format!("want {lists}"),
            &format!("have {lists}"),
            &format!("drop {lists}"),
            &format!("drop {cluster}"),
        ]
    );
}

#[test]
fn an_observer_hears_an_end_for_each_lock_that_was_taken() {
    let swap = device::<RelaxBy<Listener, BeforeClusterScan>>();
    heard();
    let mut entries = Vec::new();
    for folio in 0..7 {
        for size in [0, 4, 9] {
            let got = swap.alloc_folio(LogicalCpu(folio % 4), order(size), FolioId(folio), DeviceMask::ALL);
            entries.extend(got.ok().map(|entry| (entry, size, folio)));
        }
    }
    entries.into_iter().for_each(|(entry, size, folio)| give(&swap.slots, entry, size, folio));
    let mut held: Vec<String> = Vec::new();
    let mut locks = 0;
    for line in heard() {
        match line.split_once(' ') {
            Some(("have", lock)) => {
                assert!(!held.contains(&lock.to_owned()), "{lock} was taken twice");
                held.push(lock.to_owned());
                locks += 1;
            }
            Some(("drop", lock)) => {
                let at = held.iter().position(|other| other == lock);
                held.remove(at.unwrap_or_else(|| panic!("{lock} was dropped but not taken")));
            }
            _ => {}
        }
    }
    assert!(held.is_empty() && locks > 50, "{held:?}, {locks} locks");
}
