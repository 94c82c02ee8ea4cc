//! Tasks on one logical CPU: they write memory, and memory beyond the limit leaves.

use super::folio::{Folio, LargeFolios, Splits};
use super::page_table::{PageState, PageTable};
use super::task_memory::{HugePages, TaskMemory, UnmapBy, Unmapper};
use super::write_back::{Leaving, OnlyCached, leave_cache};
use crate::ram_device::{PAGE, RamDevice};
use folioswap_slots::{DeviceMask, FolioId, LogicalCpu, Order, Policy, Slots, SwapEntry};
use serde::Serialize;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::ops::Range;
use std::ptr::NonNull;

/// Pages that leave together: a reclaim batch of the kernel.
const BATCH: u32 = 32;
/// Pages that a task writes before the next one runs: 2 MiB.
const SLICE: u32 = 512;
const WORDS: usize = PAGE / 8;

/// The memory and the device below the page tables.
#[derive(Debug, Clone, Copy)]
pub enum Backing<'a> {
    /// No memory and no device: slots, page tables and lists only.
    None,
    /// Memory that is present from the start and stays. Its bytes are copied to the device.
    Resident(&'a RamDevice),
    /// Memory that comes with the first touch of a folio, by one call each, and goes when the folio
    /// has left.
    Paged(&'a RamDevice),
}

impl<'a> Backing<'a> {
    fn device(self) -> Option<&'a RamDevice> {
        match self {
            Backing::None => None,
            Backing::Resident(device) | Backing::Paged(device) => Some(device),
        }
    }
}

/// The setup of a [`Cpu`].
pub struct Setup<'a, P: Policy> {
    /// The allocator, with a device at least as large as that of the backing.
    pub slots: &'a Slots<0, P>,
    /// The logical CPU whose clusters are used.
    pub logical: LogicalCpu,
    /// The rule for large folios.
    pub large_folios: LargeFolios,
    /// Order in which memory comes.
    pub order: Order,
    /// Number of tasks.
    pub tasks: u32,
    /// Memory of each task, pages; a multiple of 512.
    pub task_pages: u32,
    /// Pages of all tasks that may be in memory, those under write-back included. The limit is at
    /// least four batches (of 32 pages or a folio).
    pub limit: u32,
    /// Memory and device.
    pub backing: Backing<'a>,
}

struct Task {
    table: PageTable,
    memory: Option<TaskMemory>,
    /// First pages of the folios that are no longer fully mapped (the kernel's deferred-split
    /// list).
    deferred_split: BTreeSet<u32>,
    /// Number of the task's first page among the pages of all tasks of all CPUs.
    base: u32,
}

/// The frees at the end of all tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Exit {
    /// Swapped-out pages whose slots were freed.
    pub pages: u64,
    /// Calls of `free_swap_and_cache` for these pages, one for each run of entries.
    pub calls: u64,
    /// Lookups of a cached folio on the way (spec §3.2).
    pub lookups: u64,
}

/// Pages that were compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verified {
    /// Pages in memory.
    pub present: u64,
    /// Pages on the device.
    pub swapped: u64,
}

/// Tasks on a logical CPU, on cache lines of their own.
#[repr(align(128))]
pub struct Cpu<'a, P: Policy> {
    slots: &'a Slots<0, P>,
    logical: LogicalCpu,
    large_folios: LargeFolios,
    order: Order,
    limit: u32,
    backing: Backing<'a>,
    tasks: Vec<Task>,
    /// Folios in memory, the oldest first.
    inactive: VecDeque<Folio>,
    leaving: Vec<Leaving>,
    resident: u32,
    unmapper: Unmapper,
    splits: Splits,
    requests: u64,
    refused: u64,
}

impl<'a, P: Policy> Cpu<'a, P> {
    /// Makes tasks that have touched nothing. Cost: [`Backing::Resident`] takes all of their
    /// memory.
    ///
    /// # Errors
    /// The system has no memory to map.
    pub fn new(setup: &Setup<'a, P>) -> io::Result<Cpu<'a, P>> {
        let first = setup.logical.0 * setup.tasks;
        let task = |index: u32| {
            let (pages, base) = (setup.task_pages, (first + index) * setup.task_pages);
            let memory = match setup.backing {
                Backing::None => None,
                Backing::Resident(_) => {
                    // The advice is the same for all orders, so that only the swapping differs.
                    let mut memory = TaskMemory::map(pages, HugePages::Asked)?;
                    memory.populate(0, pages)?;
                    Some(memory)
                }
                Backing::Paged(_) => {
                    let huge = if setup.order == Order::MAX { HugePages::Asked } else { HugePages::Never };
                    Some(TaskMemory::map(pages, huge)?)
                }
            };
            Ok(Task { table: PageTable::new(pages), memory, deferred_split: BTreeSet::new(), base })
        };
        let batch = BATCH.max(setup.order.slots());
        let limit = setup.limit.max(4 * batch);
        // The memory of the list is touched now, so that it takes no page faults while a clock
        // runs.
        let mut inactive = VecDeque::from(vec![Folio { first: 1, ..Folio::default() }; limit as usize + 1]);
        inactive.clear();
        Ok(Cpu {
            slots: setup.slots,
            logical: setup.logical,
            large_folios: setup.large_folios,
            order: setup.order,
            limit,
            backing: setup.backing,
            tasks: (0..setup.tasks).map(task).collect::<io::Result<_>>()?,
            inactive,
            leaving: Vec::with_capacity(2 * batch as usize),
            resident: 0,
            unmapper: Unmapper::new()?,
            splits: Splits::default(),
            requests: 0,
            refused: 0,
        })
    }

    /// Folios that were split so far.
    pub fn splits(&self) -> Splits {
        self.splits
    }

    /// Write requests so far, one for each folio that left.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// How often a single page found no slot and stayed.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Pages in memory, those under write-back included.
    pub fn resident(&self) -> u32 {
        self.resident
    }

    /// How memory is taken away.
    pub fn unmap_by(&self) -> UnmapBy {
        self.unmapper.by()
    }

    /// The state of a page of a task.
    ///
    /// # Panics
    /// There is no such task or page.
    pub fn page_state(&self, task: u32, page: u32) -> PageState {
        self.tasks[task as usize].table.state(page)
    }

    /// Lets every task write all of its memory once, 2 MiB at a time in turn.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    pub fn write_all(&mut self) {
        let pages = self.tasks.first().map_or(0, |task| task.table.pages());
        for first in (0..pages).step_by(SLICE as usize) {
            for task in 0..self.tasks.len() as u32 {
                self.write(task, first..first + SLICE);
            }
        }
    }

    /// Lets a task write pages that it has not touched before, folio by folio: each word is its own
    /// number.
    ///
    /// # Panics
    /// There are no such pages, or the range is no multiple of a folio, or the system has no
    /// memory.
    pub fn write(&mut self, task: u32, pages: Range<u32>) {
        for first in pages.step_by(self.order.slots() as usize) {
            self.come_in(Folio { task, first, order: self.order });
            let Task { memory: Some(memory), base, .. } = &mut self.tasks[task as usize] else { continue };
            let number = u64::from(*base + first) * WORDS as u64;
            for (step, word) in memory.words(first, self.order.slots()).iter_mut().enumerate() {
                *word = number + step as u64;
            }
        }
    }

    fn come_in(&mut self, folio: Folio) {
        let pages = folio.order.slots();
        self.make_room(pages);
        let task = &mut self.tasks[folio.task as usize];
        if let (Backing::Paged(_), Some(memory)) = (self.backing, &mut task.memory) {
            memory.populate(folio.first, pages).expect("the system has memory for what the limit permits");
        }
        task.table.set(folio.pages(), PageState::Present);
        self.resident += pages;
        self.inactive.push_back(folio);
    }

    /// Makes room for `pages` more within the limit. The next batch is begun before it is needed,
    /// as by a reclaim thread, so that a task that ends finds folios under write-back. Where
    /// nothing can leave, the limit does not hold.
    fn make_room(&mut self, pages: u32) {
        while self.resident + pages > self.limit {
            if self.leaving.is_empty() {
                self.shrink();
            }
            if self.leaving.is_empty() {
                return;
            }
            self.end_write_back();
        }
        let batch = BATCH.max(self.order.slots());
        if self.leaving.is_empty() && self.resident + pages + batch > self.limit {
            self.shrink();
        }
    }

    /// Swaps a batch of the oldest folios out.
    fn shrink(&mut self) {
        let mut isolated = 0;
        while isolated < BATCH {
            let Some(folio) = self.inactive.pop_front() else { return };
            isolated += folio.order.slots();
            self.swap_out(folio);
        }
    }

    /// Swaps an isolated folio out, whole or page by page. A page without a slot stays in memory,
    /// as the youngest.
    fn swap_out(&mut self, folio: Folio) {
        if self.tasks[folio.task as usize].deferred_split.remove(&folio.first) {
            self.splits.partially_mapped += 1;
            return self.swap_out_page_by_page(folio);
        }
        if !self.large_folios.tries_whole(folio.order) {
            self.splits.by_rule += 1;
            return self.swap_out_page_by_page(folio);
        }
        let id = FolioId(self.tasks[folio.task as usize].base + folio.first);
        match self.slots.alloc_folio(self.logical, folio.order, id, DeviceMask::ALL) {
            Ok(entry) => self.leave(Leaving { folio, id, entry }),
            Err(_) if folio.order > Order::ZERO => {
                self.splits.no_slots += 1;
                self.swap_out_page_by_page(folio);
            }
            Err(_) => {
                self.refused += 1;
                self.inactive.push_back(folio);
            }
        }
    }

    fn swap_out_page_by_page(&mut self, folio: Folio) {
        for page in folio.split() {
            match self.page_state(page.task, page.first) {
                PageState::Present => self.swap_out(page),
                // The page was given back; only now can its memory go.
                PageState::None | PageState::Swapped(_) => self.resident -= 1,
            }
        }
    }

    /// The folio has slots: they enter the page table, and its bytes are written by one request.
    fn leave(&mut self, leaving: Leaving) {
        let Leaving { folio, entry, .. } = leaving;
        let task = &mut self.tasks[folio.task as usize];
        task.table.set_swapped(folio.pages(), entry);
        self.requests += 1;
        if let (Some(device), Some(memory)) = (self.backing.device(), &task.memory) {
            // SAFETY: the pages are present and this CPU's; the slots were just allocated, so they
            // are nobody else's until they are freed.
            unsafe { device.write(entry, folio.order.slots(), memory.page(folio.first)) }
        }
        self.leaving.push(leaving);
    }

    /// Ends write-back: the folios leave the swap cache, and their memory goes.
    pub fn end_write_back(&mut self) {
        for leaving in &self.leaving {
            let Folio { task, first, order } = leaving.folio;
            if let (Backing::Paged(_), Some(memory)) = (self.backing, &self.tasks[task as usize].memory) {
                // SAFETY: the pages stay mapped until the task ends, which flushes first; their
                // content is on the device.
                unsafe { self.unmapper.add(memory.page(first), order.slots()) }
            }
        }
        self.unmapper.flush();
        for leaving in self.leaving.drain(..) {
            leave_cache(self.slots, &leaving);
            self.resident -= leaving.folio.order.slots();
        }
    }

    /// Like [`begin_page_out`](Self::begin_page_out), but waits for the end of the write-back.
    ///
    /// # Panics
    /// There is no such task.
    pub fn page_out(&mut self, task: u32, pages: Range<u32>) {
        self.begin_page_out(task, pages);
        self.end_write_back();
    }

    /// Advises pages of the task to leave (MADV_PAGEOUT). A folio that lies wholly in the range is
    /// reclaimed as one; another one is split, and its pages in the range leave (spec §3.7). They
    /// are under write-back afterwards.
    ///
    /// # Panics
    /// There is no such task.
    pub fn begin_page_out(&mut self, task: u32, pages: Range<u32>) {
        let touches =
            |folio: &Folio| folio.task == task && folio.first < pages.end && pages.start < folio.pages().end;
        let (advised, others): (VecDeque<Folio>, VecDeque<Folio>) =
            self.inactive.drain(..).partition(touches);
        self.inactive = others;
        for folio in advised {
            if pages.start <= folio.first && folio.pages().end <= pages.end {
                self.swap_out(folio);
                continue;
            }
            self.splits.partly_advised += 1;
            self.tasks[task as usize].deferred_split.remove(&folio.first);
            for page in folio.split() {
                match self.page_state(task, page.first) {
                    PageState::Present if pages.contains(&page.first) => self.swap_out(page),
                    PageState::Present => self.inactive.push_back(page),
                    PageState::None | PageState::Swapped(_) => self.resident -= 1,
                }
            }
        }
    }

    /// Gives back a page that is in memory (MADV_DONTNEED). The rest of a large folio stays mapped
    /// and waits for its split.
    ///
    /// # Panics
    /// The page is not in memory.
    pub fn give_back(&mut self, task: u32, page: u32) {
        assert_eq!(self.page_state(task, page), PageState::Present, "page {page} of task {task}");
        let covers = |folio: &Folio| folio.task == task && folio.pages().contains(&page);
        let index = self.inactive.iter().position(covers).expect("what is in memory is on the list");
        let folio = self.inactive[index];
        let Task { table, memory, deferred_split, .. } = &mut self.tasks[task as usize];
        table.set(page..page + 1, PageState::None);
        if let (Backing::Paged(_), Some(memory)) = (self.backing, memory) {
            // SAFETY: the page is mapped, and flushed at once; the task wants its content gone.
            unsafe { self.unmapper.add(memory.page(page), 1) }
            self.unmapper.flush();
        }
        if folio.order > Order::ZERO {
            deferred_split.insert(folio.first);
        } else {
            self.inactive.remove(index);
            self.resident -= 1;
        }
    }

    /// Ends all tasks: their slots are freed, run by run of their page tables (spec §3.2), and
    /// their memory goes.
    ///
    /// # Panics
    /// The allocator does not know the slots, or a folio is left in the swap cache.
    pub fn exit(&mut self) -> Exit {
        let mut exit = Exit::default();
        let hooks =
            OnlyCached { slots: self.slots, leaving: RefCell::new(&mut self.leaving), lookups: Cell::new(0) };
        for task in &mut self.tasks {
            let mut page = 0;
            while page < task.table.pages() {
                let Some(run) = task.table.swapped_run(page) else {
                    page += 1;
                    continue;
                };
                let freed = self.slots.free_swap_and_cache(run.entry, run.pages, &hooks, |_, _| {});
                let put = freed.expect("slots of a device that is on");
                assert_eq!(put.rejected, 0, "slots that were freed before");
                exit.calls += 1;
                exit.pages += u64::from(run.pages);
                page += run.pages;
            }
            task.table.set(0..task.table.pages(), PageState::None);
            task.deferred_split.clear();
            task.memory = None;
        }
        exit.lookups = hooks.lookups.get();
        assert!(self.leaving.is_empty(), "the last free of a folio takes it out of the swap cache");
        self.inactive.clear();
        self.resident = 0;
        exit
    }

    /// Compares every page that was written, in memory or on the device, with the words that were
    /// written. `None` with [`Backing::None`].
    ///
    /// # Panics
    /// A page has other bytes.
    pub fn verify(&mut self) -> Option<Verified> {
        let device = self.backing.device()?;
        let mut verified = Verified::default();
        let mut read = [0u64; WORDS];
        for task in &mut self.tasks {
            for page in 0..task.table.pages() {
                let words: &[u64] = match (task.table.state(page), &mut task.memory) {
                    (PageState::Present, Some(memory)) => {
                        verified.present += 1;
                        memory.words(page, 1)
                    }
                    (PageState::Swapped(entry), _) => {
                        verified.swapped += 1;
                        read_page(device, entry, &mut read);
                        &read
                    }
                    _ => continue,
                };
                let number = u64::from(task.base + page) * WORDS as u64;
                let sound = words.iter().enumerate().all(|(step, word)| *word == number + step as u64);
                assert!(sound, "page {page} has other bytes than were written");
            }
        }
        Some(verified)
    }
}

fn read_page(device: &RamDevice, entry: SwapEntry, to: &mut [u64; WORDS]) {
    // SAFETY: the array has the size of a page; the slot is swapped out, so nobody writes it.
    unsafe { device.read(entry, 1, NonNull::from(to).cast()) }
}
