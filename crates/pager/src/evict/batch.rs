//! One batch of eviction: the clock's hand goes on, cold pages are isolated into staging, and the
//! oldest berths of staging are written back.

use crate::engine::placement::NO_CPU;
use crate::engine::ring_turn::RingTurn;
use crate::evict::candidates::Asks;
use crate::evict::clock::RegionsOf;
use crate::evict::evictor::Evictor;
use crate::evict::huge_page_batch::HugePageTaken;
use crate::evict::registration::Memory;
use crate::evict::tiers::DevicesFull;
use crate::evict::wanted::Wanted;
use crate::kernel::ranges::Range;
use crate::kernel::{pagemap, sys};
use crate::staging::batch::{BATCH_PAGES, Batch, Scattered};
use crate::staging::candidates::Candidates;
use crate::staging::isolation::{Isolation, Refused};
use crate::staging::ring::RECYCLED_BERTHS;
use crate::staging::ring::Staging;
use crate::staging::row::{ROW_PIECES, Row, Rows};
use crate::units::{BLOCK, PAGE, PIECE_PAGES, PageAddr, Pages, PieceAddr};
use core::sync::atomic::Ordering::Relaxed;
use folioswap_group::counters::Counter;

/// How often the clock's hand may come round in a batch that finds nothing
/// (`folioswap_policy::reclaim::aging`).
const ROUNDS: u64 = 4;

/// The same where nobody waits: the rounds that cool no more than was paid for.
const ROUNDS_AHEAD: u64 = 2;

/// The most bytes whose present pages are listed together.
const SCAN_BYTES: usize = 64 << 20;

/// The latest address at which a scan that begins at `start` ends. It is never within a huge page.
pub(crate) fn scan_end(start: usize) -> usize {
    start.saturating_add(SCAN_BYTES) & !(BLOCK - 1)
}

/// The most pieces that one batch looks at, so that a fork does not wait long.
const BATCH_PIECES: usize = 4096;

/// Whether the kernel refused to move a huge page.
fn is_busy_huge_page(row: &Row, done: &[Isolation; ROW_PIECES]) -> bool {
    row.is_huge_page() && done[0].busy == Pages::MAX && done[0].moved == 0
}

impl Evictor {
    /// Isolates some pages and writes as many back.
    pub(crate) fn evict_batch(&mut self) -> Batch {
        let mut batch = Batch::default();
        let began_ns = sys::now_ns();
        let served_on = self.engine.threads.faulting_cpu.load(Relaxed);
        // Where several members are busy, so is every CPU: all evictors would crowd onto the CPUs
        // on which no thread faults, and the others would idle.
        let faulting = if self.engine.others_are_active() { NO_CPU } else { served_on };
        self.placement.keep_away(faulting);
        // Rows that the handler takes out leave on the CPU where the thread faults, whoever else is
        // busy.
        batch.planned = (served_on != NO_CPU && self.may_hand_over()).then_some(0);
        let comes_over = batch.planned.is_none() && self.handover.scattered == Scattered::Yes;
        let joined = comes_over && self.placement.join(faulting);
        // As many berths as a batch brings in will be due, and are due from now on.
        self.with_help(BATCH_PAGES / PIECE_PAGES as u64, |evictor| {
            evictor.isolate_batch(&mut batch);
            if joined {
                evictor.placement.leave();
            }
            evictor.hand_over(faulting, &mut batch);
            if batch.isolated > 0 {
                evictor.handover.scattered = Scattered::of(batch.isolated, batch.moves);
            }
            evictor.write_back_batch(&mut batch);
        });
        self.shortage.stuck = batch.stuck;
        self.engine.note_batch(began_ns, batch.isolated);
        batch
    }

    fn isolate_batch(&mut self, batch: &mut Batch) {
        let wraps = self.clock.wraps;
        let rounds = if self.shortage.reason == Wanted::Ahead { ROUNDS_AHEAD } else { ROUNDS };
        let mut row = Row::default();
        let mut looked_at = 0;
        while looked_at < BATCH_PIECES {
            looked_at += 1;
            let is_open = self.goes_on(&row, batch);
            // Perhaps nothing of the row can be moved; then the batch goes on.
            if !is_open
                && batch.found() + row.pages() >= BATCH_PAGES
                && self.take_row(core::mem::take(&mut row), batch).is_some()
            {
                return;
            }
            // The rounds are: the rest of the present one; a whole round, which may cool no more
            // than was paid for; one that cools everything; one that takes what is cold by then.
            // After those there is nothing to find. Planned pages are still in the program, and the
            // next round would find them again.
            let comes_round_again =
                self.clock.wraps > wraps && batch.planned.is_some_and(|planned| planned > 0);
            if !is_open && batch.found() >= BATCH_PAGES
                || comes_round_again
                || self.clock.wraps >= wraps + rounds
            {
                break;
            }
            // Taken before the hand comes round, so that these pages count in its round.
            if self.clock.region_next >= self.clock.region_count
                && self.take_row(core::mem::take(&mut row), batch).is_some()
            {
                return;
            }
            if !self.find_regions() {
                break;
            }
            if let Some(block) = self.huge_page_of_regions() {
                looked_at += ROW_PIECES - 1;
                match self.take_huge_page_if_cold(block, core::mem::take(&mut row), batch) {
                    HugePageTaken::Passed => continue,
                    HugePageTaken::NoRoom | HugePageTaken::Refused => return,
                    HugePageTaken::Pieces => {}
                }
            }
            let (piece, present) = self.piece_of_regions();
            self.clock.aging.note(u64::from(present.count_ones()), 0);
            let Ok(wanted) = self.wanted_of(piece, present, batch) else { break };
            if wanted.all() != 0 && !row.append(piece, wanted, self.engine.rows_at(piece.page(0))) {
                let before = core::mem::replace(&mut row, Row::of(piece, wanted));
                if self.take_row(before, batch).is_some() {
                    return;
                }
            }
        }
        self.take_row(row, batch);
    }

    /// Whether the batch goes on for the sake of this row. A row that is cut off would begin the
    /// next row where no folio of its length begins, and so every row after it.
    fn goes_on(&self, row: &Row, batch: &Batch) -> bool {
        if row.is_empty() {
            return false;
        }
        let rows = self.engine.rows_at(row.start().page(0));
        row.is_open(rows) && batch.found() < rows.pages()
    }

    fn write_back_batch(&mut self, batch: &mut Batch) {
        // Shared pages leave as copies that the group did not have before: they go out at once, all
        // that came in.
        let makes_copies = self.shortage.desperate;
        let wanted_waiting = if makes_copies { 0 } else { self.inactive_length() };
        let recycled_together = match self.handover.scattered {
            Scattered::No => self.staging().recycled_together(wanted_waiting),
            // Pages that come one by one need the memory of these berths: a batch is given back at
            // a time, before the group is at its limit.
            Scattered::Yes => self.staging().recycled_together(wanted_waiting.min(RECYCLED_BERTHS)),
        };
        let drain = batch.isolated == 0 && !batch.event_pending && !batch.staging_full;
        let planned = match self.engine.rows_at(PageAddr::containing(self.clock.hand)) {
            Rows::Joined if !makes_copies => BATCH_PAGES,
            // A long row that came in at once goes out at once, because staging would fill up
            // otherwise.
            Rows::Joined | Rows::Long => batch.isolated.max(BATCH_PAGES),
        };
        while batch.written < planned {
            let staging = self.staging();
            let due = staging.waiting() > wanted_waiting
                || staging.berth_count() - staging.occupied() < 2 * RECYCLED_BERTHS;
            // No more than is due is written, so that berths that wait for their turn can still be
            // touched.
            let beyond =
                if drain { staging.waiting() } else { staging.waiting().saturating_sub(wanted_waiting) };
            let left = (planned - batch.written).div_ceil(PIECE_PAGES as u64);
            let most = beyond.min(left).max(1);
            if staging.waiting() == 0 || !(due || drain) {
                break;
            }
            self.offer_more(most);
            if self.write_back_next(batch, most as usize).is_err() {
                break;
            }
        }
        self.size_inactive_list(batch.folios, batch.written);
        if batch.stuck {
            batch.folios += self.let_gone_go(Memory::Short);
        }
        let least = if drain && self.staging().waiting() == 0 { 1 } else { recycled_together };
        self.give_back_berths(least);
    }

    /// Gives the memory of berths that have left staging to the system, if there are so many.
    pub(crate) fn give_back_berths(&mut self, least: u64) {
        let engine = self.engine;
        let userfault = engine.userfault();
        let keep = |address| engine.keep_huge_page(address);
        let given_back = self.staging_mut().recycle(userfault, least, keep) as u64;
        self.shortage.given_back = (self.shortage.given_back + given_back).min(BLOCK as u64);
    }

    /// Writes the oldest berths of staging back, up to `most` together.
    ///
    /// # Errors
    /// [`DevicesFull`]: the batch is stuck.
    pub(crate) fn write_back_next(&mut self, batch: &mut Batch, most: usize) -> Result<(), DevicesFull> {
        let result = self.write_back(most);
        self.tiers.devices_full = result.is_err();
        batch.stuck |= result.is_err();
        let back = result?;
        batch.written += back.pages;
        batch.folios += back.folios;
        Ok(())
    }

    /// The right to the ring, for as long as the evictor is borrowed.
    pub(crate) fn ring_turn(&mut self) -> RingTurn<'_> {
        // SAFETY: this is the evictor, and it comes here only with no plan on offer: it sleeps in
        // `hand_over` meanwhile.
        unsafe { RingTurn::new(self.engine) }
    }

    /// The ring, for reading.
    pub(crate) fn staging(&self) -> &Staging {
        // SAFETY: outside of the sections of `locks.write_back` only the evictor, which `&self`
        // borrows, changes the ring now (see `RingTurn`).
        unsafe { &*self.engine.staging.get() }
    }

    /// The ring, for changes.
    pub(crate) fn staging_mut(&mut self) -> &mut Staging {
        self.ring_turn().into_ring()
    }

    /// The pages of a piece that may be taken now. Where write-back is stuck, its clean pages leave
    /// at once.
    ///
    /// # Errors
    /// The reason why that was refused; the batch ends then.
    fn wanted_of(
        &mut self,
        piece: PieceAddr,
        present: Pages,
        batch: &mut Batch,
    ) -> Result<Candidates, Refused> {
        let engine = self.engine;
        engine.figures().add(Counter::ScannedBackground, present.count_ones() as u64);
        let present = self.without_shared(piece, present, batch);
        if present == 0 {
            return Ok(Candidates::default());
        }
        let Some(block) = engine.table.block_or_insert(piece, engine.arena) else {
            return Ok(Candidates::default());
        };
        let candidates = engine.candidates(block, piece, present, Asks::Clock(&mut self.clock.aging));
        if !self.shortage.stuck || candidates.clean == 0 {
            return Ok(candidates);
        }
        let (dropped, left) = self.ring_turn().drop_clean(piece, candidates.clean);
        batch.note(&dropped);
        batch.written += left;
        self.clock.aging.note(0, u64::from(dropped.moved.count_ones()));
        match dropped.refused {
            Some(refused) => Err(refused),
            None => Ok(candidates.among(!dropped.moved)),
        }
    }

    /// Takes a row that the clock has met out of the program, or plans to. Returns the refusal that
    /// ends the batch, if there was one.
    pub(crate) fn take_row(&mut self, row: Row, batch: &mut Batch) -> Option<Refused> {
        if self.plan(&row, batch) {
            return None;
        }
        let before = batch.isolated;
        let refused = self.isolate_in_parts(row, batch);
        self.clock.aging.note(0, batch.isolated - before);
        refused
    }

    /// Takes a row out of the program, as many pieces at a time as there are free berths side by
    /// side. Returns the refusal that ended it, if there was one.
    pub(crate) fn isolate_in_parts(&mut self, mut row: Row, batch: &mut Batch) -> Option<Refused> {
        let mut refused = None;
        while refused.is_none()
            && let Some(part) = row.take(self.staging().berths_in_a_row())
        {
            let mut done = self.ring_turn().isolate_row(&part);
            if is_busy_huge_page(&part, &done) && self.take_over_huge_page(part.start().block()) {
                done = self.ring_turn().isolate_row(&part);
            }
            done.iter().for_each(|isolation| batch.note(isolation));
            refused = done.iter().find_map(|isolation| isolation.refused);
            if is_busy_huge_page(&part, &done) {
                self.note_busy_huge_page(part.start().block(), batch);
                continue;
            }
            for ((piece, wanted), isolation) in part.pieces().zip(done) {
                if refused.is_none() && isolation.busy != 0 {
                    refused = self.take_busy(piece, wanted, isolation.busy, batch);
                }
            }
        }
        refused
    }

    /// Handles pages that the kernel did not move, because they are shared after a fork or pinned.
    /// A shared page frees nothing when one relative gives it up, and costs a copy in each: it
    /// leaves only when nothing else is left. A pinned page is left alone.
    fn take_busy(
        &mut self,
        piece: PieceAddr,
        wanted: Candidates,
        busy: Pages,
        batch: &mut Batch,
    ) -> Option<Refused> {
        let engine = self.engine;
        let block = engine.table.block(piece)?;
        let ours = self.take_over(piece, busy);
        batch.shared += (busy & !ours).count_ones() as u64;
        if ours == 0 {
            return None;
        }
        let second = self.ring_turn().isolate(piece, wanted.among(ours));
        batch.note(&second);
        engine.figures().add(Counter::Unshared, second.moved.count_ones() as u64);
        engine.figures().add(Counter::Pinned, second.busy.count_ones() as u64);
        let left = wanted.clean & second.busy;
        for page in (0..PIECE_PAGES).filter(|page| self.shortage.desperate && left >> page & 1 != 0) {
            // The page is taken like any other next time.
            let index = piece.index().plus(page);
            engine.give_up_clean(block, index, block.word(index));
        }
        second.refused
    }

    /// The pages of a piece without those that relatives share, as long as anything else may be
    /// left. One question covers all pages of a piece, where each attempt to move one would be
    /// refused by itself.
    pub(crate) fn without_shared(&self, piece: PieceAddr, present: Pages, batch: &mut Batch) -> Pages {
        if self.shortage.desperate || !self.engine.fork.has_relatives() {
            return present;
        }
        let now = self.engine.pages_now(piece.page(0), PIECE_PAGES);
        batch.shared += u64::from((present & now.present & !now.exclusive).count_ones());
        present & now.exclusive
    }

    /// Makes those of the pages that the kernel did not move this process's own that no relative
    /// shares any more (all of them when nothing else is left). It reads them, because a write
    /// would end their being clean, and would be a fault where they are protected. Pinned pages
    /// stay as they are.
    fn take_over(&self, piece: PieceAddr, busy: Pages) -> Pages {
        let all = if self.shortage.desperate {
            Pages::MAX
        } else {
            self.engine.pages_now(piece.page(0), PIECE_PAGES).exclusive
        };
        let ours = busy & all;
        let (mut addresses, mut count) = ([0; PIECE_PAGES], 0);
        for page in (0..PIECE_PAGES).filter(|page| ours >> page & 1 != 0) {
            addresses[count] = piece.page(page).raw();
            count += 1;
        }
        if count > 0 {
            sys::read_bytes(&addresses[..count]);
        }
        ours
    }

    /// Looks for present pages under the clock's hand, until some are listed. False: a whole round
    /// found none.
    fn find_regions(&mut self) -> bool {
        let mut wrapped = false;
        loop {
            if self.clock.region_next < self.clock.region_count {
                return true;
            }
            if self.look_at_cold() {
                continue;
            }
            let Some(Range { start, end }) = self.next_registered(self.clock.hand, usize::MAX) else {
                if wrapped {
                    return false;
                }
                wrapped = true;
                self.clock.wraps += 1;
                self.clock.aging.begin_round();
                self.clock.hand = 0;
                continue;
            };
            let end = end.min(scan_end(start));
            let pagemap = self.engine.descriptors.pagemap.load(Relaxed);
            match pagemap::present(pagemap, start, end, &mut self.clock.regions) {
                Ok(scan) => {
                    self.clock.region_count = scan.regions;
                    self.clock.region_next = 0;
                    self.clock.regions_of = RegionsOf::Clock;
                    self.clock.hand = if scan.end > start { scan.end } else { end };
                }
                Err(_) => self.clock.hand = end,
            }
        }
    }

    /// Lists the present pages of ranges that are advised to be cold, which come before anything
    /// else. False: none of those is left.
    fn look_at_cold(&mut self) -> bool {
        let Some(Range { start: from, end: until }) = self.clock.cold.first() else { return false };
        let Some(Range { start, end }) = self.next_registered(from, until) else {
            self.clock.cold.end_first();
            return true;
        };
        let end = end.min(scan_end(start));
        let pagemap = self.engine.descriptors.pagemap.load(Relaxed);
        let scan = pagemap::present(pagemap, start, end, &mut self.clock.regions);
        self.clock.region_next = 0;
        self.clock.region_count = scan.map_or(0, |scan| scan.regions);
        self.clock.regions_of = RegionsOf::Cold;
        self.clock.cold.go_on_from(scan.map_or(end, |scan| if scan.end > start { scan.end } else { end }));
        true
    }

    /// The first registered range within `start..end`.
    pub(crate) fn next_registered(&self, start: usize, end: usize) -> Option<Range> {
        let _events_wait = self.engine.locks.moves.lock();
        let range = self.engine.mappings.registered.next(start)?;
        (range.start < end && start < end)
            .then(|| Range { start: start.max(range.start), end: range.end.min(end) })
    }

    pub(crate) fn piece_of_regions(&mut self) -> (PieceAddr, Pages) {
        let piece = PieceAddr::containing(self.clock.regions[self.clock.region_next].start as usize);
        let mut present: Pages = 0;
        while self.clock.region_next < self.clock.region_count {
            let region = &mut self.clock.regions[self.clock.region_next];
            let start = region.start as usize;
            if start >= piece.end() {
                break;
            }
            let end = (region.end as usize).min(piece.end());
            for page in (start - piece.raw()) / PAGE..(end - piece.raw()) / PAGE {
                present |= 1 << page;
            }
            if end < region.end as usize {
                region.start = end as u64;
                break;
            }
            self.clock.region_next += 1;
        }
        (piece, present)
    }
}
