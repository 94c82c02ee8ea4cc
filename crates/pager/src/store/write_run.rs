//! The run of pages that several berths write to a shared device together.

use crate::staging::ring::BerthIndex;
use crate::store::write_back::RUN_BERTHS;
use crate::units::{PIECE_PAGES, Pages};
use folioswap_slots::SwapEntry;

pub(super) const RUN_PAGES: usize = RUN_BERTHS * PIECE_PAGES;

/// A berth that was looked at.
#[derive(Clone, Copy)]
pub(super) struct Looked {
    pub(super) berth: BerthIndex,
    /// Its first page that goes to a shared device, and the number of pages from there on. Pages in
    /// between that do not need to go are written too, because a run must be contiguous.
    pub(super) first: usize,
    pub(super) count: usize,
    /// Pages of it that are stored by now.
    pub(super) stored: Pages,
}

/// The oldest berths of staging that are written back together: their pages for a shared device
/// form one run there.
pub(super) struct WriteRun {
    pub(super) entries: [Option<SwapEntry>; RUN_PAGES],
    pub(super) pages: usize,
    pub(super) looked: [Looked; RUN_BERTHS],
    pub(super) folios: usize,
}

impl WriteRun {
    pub(super) const fn new() -> Self {
        let none = Looked { berth: BerthIndex::new(0), first: 0, count: 0, stored: 0 };
        WriteRun { entries: [None; RUN_PAGES], pages: 0, looked: [none; RUN_BERTHS], folios: 0 }
    }

    /// Adds a berth; the pages of the entries `wanted` go to a shared device.
    pub(super) fn push(
        &mut self,
        berth: BerthIndex,
        wanted: &[Option<SwapEntry>; PIECE_PAGES],
        stored: Pages,
    ) {
        let first = wanted.iter().position(Option::is_some).unwrap_or(0);
        let end = wanted.iter().rposition(Option::is_some).map_or(first, |last| last + 1);
        let count = end - first;
        self.entries[self.pages..self.pages + count].copy_from_slice(&wanted[first..end]);
        self.pages += count;
        self.looked[self.folios] = Looked { berth, first, count, stored };
        self.folios += 1;
    }

    /// Takes the youngest berth out.
    pub(super) fn pop(&mut self) -> Option<Looked> {
        self.folios = self.folios.checked_sub(1)?;
        let looked = self.looked[self.folios];
        self.pages -= looked.count;
        Some(looked)
    }

    pub(super) fn looked(&self) -> &[Looked] {
        &self.looked[..self.folios]
    }
}
