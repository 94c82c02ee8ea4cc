//! A folio of anonymous memory, and whether it is split before it leaves.

use folioswap_slots::Order;
use serde::Serialize;
use std::ops::Range;

/// 2^order pages of a task's memory, naturally aligned there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Folio {
    /// Which task's, from 0 on.
    pub task: u32,
    /// First page, counted from the start of the task's memory.
    pub first: u32,
    /// Order.
    pub order: Order,
}

impl Folio {
    /// Its pages in the task's memory.
    pub fn pages(self) -> Range<u32> {
        self.first..self.first + self.order.slots()
    }

    /// A split: every page as a folio of its own, ascending.
    pub fn split(self) -> impl Iterator<Item = Folio> {
        self.pages().map(move |first| Folio { first, order: Order::ZERO, ..self })
    }
}

/// Which large folios are split before swap slots are looked for (spec §3.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LargeFolios {
    /// All of them: a kernel that cannot swap huge pages out whole.
    SplitFirst,
    /// All but those of 2 MiB: before series 3.
    OnlyHugeWhole,
    /// None: since series 3.
    Whole,
}

impl LargeFolios {
    /// In a table.
    pub const fn name(self) -> &'static str {
        match self {
            LargeFolios::SplitFirst => "split first",
            LargeFolios::OnlyHugeWhole => "only 2M whole",
            LargeFolios::Whole => "whole",
        }
    }

    /// Whether slots are tried for a folio of this order as it is.
    pub fn tries_whole(self, order: Order) -> bool {
        match self {
            LargeFolios::SplitFirst => order == Order::ZERO,
            LargeFolios::OnlyHugeWhole => order == Order::ZERO || order == Order::MAX,
            LargeFolios::Whole => true,
        }
    }
}

/// Folios that were split, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Splits {
    /// By rule: [`LargeFolios`].
    pub by_rule: u64,
    /// Some page of it was not mapped any more (spec §3.6).
    pub partially_mapped: u64,
    /// No run of slots was found: the fallback (spec §3.5).
    pub no_slots: u64,
    /// Only a part of it was advised to leave (spec §3.7).
    pub partly_advised: u64,
}

impl Splits {
    /// For any reason.
    pub fn sum(self) -> u64 {
        self.by_rule + self.partially_mapped + self.no_slots + self.partly_advised
    }
}

#[cfg(test)]
mod tests;
