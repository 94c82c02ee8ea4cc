//! Cluster descriptor and its state machine (spec §0).
//!
//! The pure functions [`flag_after_attempt`] and [`flag_after_free`] are the state machine's table;
//! the rest of the crate only carries out what they say. Flag and list always agree, except during
//! a discard: the cluster is then off-list with its flag set.

use crate::lists::ListId;
use crate::lock::SpinLock;
use crate::order::{CLUSTER_SLOTS, ORDERS, Order};
use crate::sync::{AtomicPtr, AtomicU8, AtomicU16, AtomicU32, Ordering};

/// The list that the cluster is on. The order of the variants matters: a cluster up to `Frag` may
/// be allocated from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Flag {
    /// Isolated by one owner, or never used.
    None = 0,
    Free = 1,
    Nonfull = 2,
    Frag = 3,
    Full = 4,
    Discard = 5,
}

impl Flag {
    #[inline]
    pub(crate) const fn from_raw(raw: u8) -> Flag {
        match raw {
            1 => Flag::Free,
            2 => Flag::Nonfull,
            3 => Flag::Frag,
            4 => Flag::Full,
            5 => Flag::Discard,
            _ => Flag::None,
        }
    }

    /// The list of a cluster with this flag and `order`; `None` for an isolated cluster.
    #[inline]
    pub(crate) const fn list(self, order: Order) -> Option<ListId> {
        match self {
            Flag::None => None,
            Flag::Free => Some(ListId::FREE),
            Flag::Full => Some(ListId::FULL),
            Flag::Discard => Some(ListId::DISCARD),
            Flag::Nonfull => Some(ListId::nonfull(order)),
            Flag::Frag => Some(ListId::frag(order)),
        }
    }
}

/// The list that an empty cluster of the device goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EmptyGoesTo {
    Free,
    /// The device discards per cluster and is writable.
    Discard,
}

impl EmptyGoesTo {
    const fn flag(self) -> Flag {
        match self {
            EmptyGoesTo::Free => Flag::Free,
            EmptyGoesTo::Discard => Flag::Discard,
        }
    }
}

/// The flag after an allocation attempt. A cluster that waits for its discard keeps its flag.
#[inline]
pub(crate) const fn flag_after_attempt(flag: Flag, used: u32, empty: EmptyGoesTo) -> Flag {
    match (flag, used) {
        (Flag::Discard, _) => Flag::Discard,
        (Flag::Free, 0) => Flag::Free,
        (_, 0) => empty.flag(),
        (_, CLUSTER_SLOTS) => Flag::Full,
        _ => Flag::Frag,
    }
}

/// The flag after slots were freed.
#[inline]
pub(crate) const fn flag_after_free(used: u32, empty: EmptyGoesTo) -> Flag {
    if used == 0 { empty.flag() } else { Flag::Nonfull }
}

/// *Usable* without looking at the table: the flag permits allocation and the order fits.
#[inline]
pub(crate) const fn order_fits(flag: Flag, used: u32, cluster_order: Order, order: Order) -> bool {
    (flag as u8) <= (Flag::Frag as u8)
        && (used == 0 || order.index() == 0 || order.index() == cluster_order.index())
}

/// Static part of a cluster, 40 bytes. Zeroed memory is a cluster that was never used.
///
/// Fields are written under the cluster lock, except `next` and `prev`, which belong to the list
/// lock; `flag` is written under both.
#[repr(C)]
pub(crate) struct Cluster {
    /// Frame with the slot words and the payload; null while the cluster is free.
    pub(crate) frame: AtomicPtr<u8>,
    pub(crate) lock: SpinLock,
    /// Changes whenever the frame leaves the cluster, so that a lockless reader notices.
    pub(crate) generation: AtomicU32,
    /// Neighbours on the list: device-relative cluster index + 1, 0 = none.
    pub(crate) next: AtomicU32,
    pub(crate) prev: AtomicU32,
    /// Frame numbers + 1; 0 = none.
    pub(crate) frame_number: AtomicU32,
    pub(crate) overflow_number: AtomicU32,
    /// Words that are not free, bad ones included.
    used: AtomicU16,
    /// Slots whose count is in the overflow array.
    overflowed: AtomicU16,
    flag: AtomicU8,
    order: AtomicU8,
    /// 0 until the cluster is first taken or gets a bad slot. Until then it lies behind the
    /// high-water mark.
    touched: AtomicU8,
}

#[cfg(all(target_pointer_width = "64", not(loom)))]
const _: () = assert!(size_of::<Cluster>() == 40, "48 bytes per cluster is the budget");

impl Cluster {
    #[inline]
    pub(crate) fn flag(&self) -> Flag {
        Flag::from_raw(self.flag.load(Ordering::Relaxed))
    }

    /// Context: cluster lock and list lock held.
    #[inline]
    pub(crate) fn set_flag(&self, flag: Flag) {
        self.flag.store(flag as u8, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn order(&self) -> Order {
        let raw = self.order.load(Ordering::Relaxed);
        debug_assert!((raw as usize) < ORDERS);
        Order::new(u32::from(raw)).unwrap_or(Order::ZERO)
    }

    /// Context: cluster lock held, cluster on no list.
    #[inline]
    pub(crate) fn set_order(&self, order: Order) {
        self.order.store(order.index() as u8, Ordering::Relaxed);
    }

    /// Used slots, bad ones included.
    #[inline]
    pub(crate) fn used(&self) -> u32 {
        u32::from(self.used.load(Ordering::Relaxed))
    }

    /// Context: cluster lock held.
    #[inline]
    pub(crate) fn set_used(&self, used: u32) {
        debug_assert!(used <= CLUSTER_SLOTS);
        self.used.store(used as u16, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn overflowed(&self) -> u32 {
        u32::from(self.overflowed.load(Ordering::Relaxed))
    }

    /// Context: cluster lock held.
    #[inline]
    pub(crate) fn set_overflowed(&self, overflowed: u32) {
        debug_assert!(overflowed <= CLUSTER_SLOTS);
        self.overflowed.store(overflowed as u16, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_touched(&self) -> bool {
        self.touched.load(Ordering::Relaxed) != 0
    }

    /// Context: cluster lock held.
    #[inline]
    pub(crate) fn set_touched(&self) {
        self.touched.store(1, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn has_frame(&self) -> bool {
        !self.frame.load(Ordering::Relaxed).is_null()
    }

    /// Makes it a cluster that was never used. Context: swapoff's last step, the cluster is
    /// unreachable for everyone else.
    pub(crate) fn reset(&self) {
        self.next.store(0, Ordering::Relaxed);
        self.prev.store(0, Ordering::Relaxed);
        self.used.store(0, Ordering::Relaxed);
        self.overflowed.store(0, Ordering::Relaxed);
        self.flag.store(0, Ordering::Relaxed);
        self.order.store(0, Ordering::Relaxed);
        self.touched.store(0, Ordering::Relaxed);
    }
}
