//! Counters, with the kernel's names.

use folioswap_slots::{ORDERS, Order};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* ; $($(#[$sizes_doc:meta])* $sizes:ident),*) => {
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
            $(pub(crate) $sizes: [AtomicU64; ORDERS],)*
        }

        /// Counts since the space was made. Arrays are by order: 0 is 4 KiB, 9 is 2 MiB.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
            $($(#[$sizes_doc])* pub $sizes: [u64; ORDERS],)*
        }

        impl Counters {
            pub(crate) fn now(&self) -> Counts {
                Counts {
                    $($name: self.$name.load(Relaxed),)*
                    $($sizes: std::array::from_fn(|order| self.$sizes[order].load(Relaxed)),)*
                }
            }
        }
    };
}

counters! {
    /// Pages read back from swap.
    pswpin,
    /// Pages written to swap.
    pswpout,
    /// Accesses that waited for swap. Each is counted once, when reading really starts.
    pgmajfault,
    /// Pages read ahead.
    swap_ra,
    /// Accesses that found a page read ahead.
    swap_ra_hit,
    /// Swap-ins that gave a folio back to an object.
    swapins,
    /// Walks of maps for swap-ins.
    walks,
    /// Large swap entries that were split.
    entry_splits,
    /// Swap-ins begun again because something had changed (EEXIST).
    retries,
    /// Pages moved from the compressed store to the file.
    demoted,
    /// Pages that could not be read back.
    poisoned
    ;
    /// Folios swapped out whole.
    swpout,
    /// Folios that left without being written, because their stored copies were kept.
    clean,
    /// Folios that were split because they could not be swapped out whole.
    swpout_fallback,
    /// Folios swapped in whole.
    swpin,
    /// Swap-ins that fell back to a smaller order.
    swpin_fallback
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

pub(crate) fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Relaxed);
}

pub(crate) fn count_order(counters: &[AtomicU64; ORDERS], order: Order) {
    counters[order.index()].fetch_add(1, Relaxed);
}
