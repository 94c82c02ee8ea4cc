//! A folio of anonymous memory, and whether it is split before it leaves.

use folioswap_slots::Order;
use serde::Serialize;
use std::ops::Range;

/// 2^order pages of a task's memory, naturally aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Folio {
    /// Number of the task, from 0.
    pub task: u32,
    /// The first page, counted from the start of the task's memory.
    pub first: u32,
    /// The order.
    pub order: Order,
}

impl Folio {
    /// The folio's pages in the task's memory.
    pub fn pages(self) -> Range<u32> {
        self.first..self.first + self.order.slots()
    }

    /// Splits the folio: every page becomes a folio of its own, in ascending order.
    pub fn split(self) -> impl Iterator<Item = Folio> {
        self.pages().map(move |first| Folio { first, order: Order::ZERO, ..self })
    }
}

/// The rule by which large folios are split before swap slots are looked for (spec §3.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LargeFolios {
    /// All are split: a kernel that cannot swap huge pages out whole.
    SplitFirst,
    /// All but those of 2 MiB are split: before series 3.
    OnlyHugeWhole,
    /// None is split: since series 3.
    Whole,
}

impl LargeFolios {
    /// The name in a table.
    pub const fn name(self) -> &'static str {
        match self {
            LargeFolios::SplitFirst => "split first",
            LargeFolios::OnlyHugeWhole => "only 2M whole",
            LargeFolios::Whole => "whole",
        }
    }

    /// Whether slots are looked for as a whole for a folio of this order.
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
    /// Split by the rule of [`LargeFolios`].
    pub by_rule: u64,
    /// A page of it was no longer mapped (spec §3.6).
    pub partially_mapped: u64,
    /// No slots were found for it: the fallback (spec §3.5).
    pub no_slots: u64,
    /// Only a part of it was advised to leave (spec §3.7).
    pub partly_advised: u64,
}

impl Splits {
    /// The sum over all reasons.
    pub fn sum(self) -> u64 {
        self.by_rule + self.partially_mapped + self.no_slots + self.partly_advised
    }
}

#[cfg(test)]
mod tests;
