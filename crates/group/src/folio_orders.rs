//! The folio sizes that the group's members may make of anonymous memory.
//!
//! The setting is the kernel's below `/sys/kernel/mm/transparent_hugepage/hugepages-*kB/enabled`:
//! for each size *always*, only where the program asked for huge pages (*madvise*), or *never*.
//! Source: Documentation/admin-guide/mm/transhuge.rst.

use crate::counters::ORDERS;

/// The program's advice for a range of its memory, by madvise(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advised {
    /// None.
    Nothing,
    /// MADV_HUGEPAGE.
    HugePages,
    /// MADV_NOHUGEPAGE.
    NoHugePages,
}

/// The allowed sizes: bit n stands for folios of 2^n pages, 1 (8 KiB) to 9 (2 MiB). Single pages
/// (order 0) are always allowed; their bit has no meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FolioOrders {
    /// Allowed everywhere but where the program wants no huge pages.
    pub always: u32,
    /// Allowed where the program asked for huge pages.
    pub madvise: u32,
}

impl FolioOrders {
    /// Every size, everywhere.
    pub const ALL: Self = FolioOrders { always: (1 << ORDERS) - 2, madvise: 0 };
    /// Single pages only.
    pub const NONE: Self = FolioOrders { always: 0, madvise: 0 };

    /// The same sizes without bits that stand for none.
    pub(crate) const fn known(self) -> Self {
        let known: u32 = (1 << ORDERS) - 1;
        FolioOrders { always: self.always & known, madvise: self.madvise & known }
    }

    /// Whether a folio of 2^`order` pages may be made of memory with this advice. Order 0 always
    /// may, an order above 9 never.
    pub const fn allows(self, order: u8, advised: Advised) -> bool {
        order == 0 || order < u32::BITS as u8 && self.orders(advised) >> order & 1 != 0
    }

    /// The largest order up to `at_most` that is allowed with this advice; 0 if no other is.
    pub const fn largest_allowed(self, at_most: u8, advised: Advised) -> u8 {
        let wanted = u32::MAX >> (u32::BITS - 1 - if at_most < 31 { at_most as u32 } else { 31 });
        match (self.orders(advised) & wanted).checked_ilog2() {
            Some(order) => order as u8,
            None => 0,
        }
    }

    /// The order that replaces `order` with this advice, up to `at_most`: the largest allowed one
    /// up to `order`, or else, if `order` is not 0, the next larger one.
    pub const fn nearest_allowed(self, order: u8, at_most: u8, advised: Advised) -> u8 {
        let below = self.largest_allowed(if order < at_most { order } else { at_most }, advised);
        let above = (self.orders(advised) >> 1 << 1).trailing_zeros();
        if below > 0 || order == 0 || above > at_most as u32 { below } else { above as u8 }
    }

    const fn orders(self, advised: Advised) -> u32 {
        match advised {
            Advised::Nothing => self.always,
            Advised::HugePages => self.always | self.madvise,
            Advised::NoHugePages => 0,
        }
    }
}

#[cfg(test)]
mod tests;
