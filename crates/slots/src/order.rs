//! Order of a folio: the base-2 logarithm of its pages.

/// Slots in a cluster: 2 MiB of 4 KiB pages (spec §0).
pub const CLUSTER_SLOTS: u32 = 512;

/// Number of orders, which are 0 to 9.
pub const ORDERS: usize = 10;

/// A folio of order n has 2^n pages and takes 2^n naturally aligned slots (spec §0).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Order(u8);

impl Order {
    /// One page.
    pub const ZERO: Order = Order(0);
    /// A whole cluster, 512 pages.
    pub const MAX: Order = Order(9);

    /// The order `order`; `None` above 9, because such a folio is larger than a cluster.
    pub const fn new(order: u32) -> Option<Order> {
        if order < ORDERS as u32 { Some(Order(order as u8)) } else { None }
    }

    /// Slots, and equally pages, of a folio of this order.
    #[inline]
    pub const fn slots(self) -> u32 {
        1 << self.0
    }

    /// As an array index, 0 to 9.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// All orders, ascending.
    pub fn all() -> impl DoubleEndedIterator<Item = Order> {
        (0..ORDERS as u8).map(Order)
    }
}

/// Set of orders that a device accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrderMask(u16);

impl OrderMask {
    /// Every order from 0 to 9.
    pub const ALL: OrderMask = OrderMask((1 << ORDERS) - 1);
    /// Order 0 only, as the kernel treats swap files (spec §2.6).
    pub const ONLY_ZERO: OrderMask = OrderMask(1);

    /// The set plus `order`.
    pub const fn with(self, order: Order) -> OrderMask {
        OrderMask(self.0 | 1 << order.0)
    }

    /// Whether `order` is in the set.
    #[inline]
    pub const fn contains(self, order: Order) -> bool {
        self.0 >> order.0 & 1 != 0
    }

    pub(crate) const fn bits(self) -> u32 {
        self.0 as u32
    }

    pub(crate) const fn from_bits(bits: u32) -> OrderMask {
        OrderMask(bits as u16 & Self::ALL.0)
    }
}
