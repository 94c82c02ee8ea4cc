//! Reclaim: which content leaves when memory is needed. Folios go to the compressed store, and its
//! oldest pages to the file, so that resident folios keep a share of the limit for themselves. A
//! thread of its own keeps some memory free; a caller that needs more than that helps.

use crate::counters::add;
use crate::devices::Growth;
use crate::frames::PAGE;
use crate::lru::Coldest;
use crate::space::ShmemSpace;
use crate::swap::{Context, RUN};
use crate::sync::{AtomicBool, Condvar, Mutex, SeqCst, lock};
use folioswap_slots::{DeviceMask, SwapEntry};
use folioswap_space::space::WriteError;
use std::sync::{Arc, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// Resident folios keep this share of the limit, as long as the file takes pages of the store.
const RESIDENT_SHARE: u64 = 8;
/// The store is compacted when this share of it is holes.
const HOLES_SHARE: u64 = 4;
const COMPACTION_BUDGET: u64 = 1 << 20;
const LOOKS: u32 = 64;

/// How much is tried before reclaim gives up on folios that find no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// A few of them.
    Some,
    /// All folios on the lists. Those that were used lately get their second chance.
    FullScan,
}

/// Folios without a place that are tried with [`Effort::Some`].
const REFUSED: u64 = 16;

/// Where the next demotion starts to look. Its lock is held during a demotion.
#[derive(Debug, Default)]
pub(crate) struct Demotion {
    cursor: u64,
}

impl ShmemSpace {
    /// Frees memory until at most `to` bytes are in use. Returns the pages that were freed or moved
    /// to the file; 0: nothing could leave just now.
    pub(crate) fn shrink(&self, to: u64, effort: Effort) -> u64 {
        let mut done = 0;
        let mut looks = 4 * self.lru.folios() + u64::from(LOOKS);
        let mut refused = 0;
        while self.used() > to {
            let scarce = self.frames.used_pages() * (PAGE as u64) < self.limit() / RESIDENT_SHARE;
            if scarce {
                let moved = self.demote();
                done += moved;
                if moved > 0 {
                    continue;
                }
            }
            match self.lru.coldest(&self.folios, LOOKS) {
                Coldest::Folio(frame) => {
                    let freed = self.swap_out(frame);
                    done += freed;
                    refused += u64::from(freed == 0);
                    let most = match effort {
                        Effort::Some => REFUSED,
                        Effort::FullScan => REFUSED.max(2 * self.lru.folios()),
                    };
                    if refused > most {
                        // The other folios do not compress, or find no slots.
                        done += self.demote();
                        break;
                    }
                }
                Coldest::NotNow if looks > 0 => looks = looks.saturating_sub(LOOKS.into()),
                Coldest::NotNow | Coldest::None => {
                    let moved = if scarce { 0 } else { self.demote() };
                    done += moved;
                    if moved == 0 {
                        break;
                    }
                }
            }
        }
        if done == 0 {
            self.swap.space().trim();
        }
        done
    }

    /// Moves a run of the oldest pages of the compressed store to the file; returns their number.
    pub(crate) fn demote(&self) -> u64 {
        let mut demotion = lock(&self.demotion);
        let _writing = self.swap.devices().write();
        let (mut full, mut devices) = (DeviceMask::NONE, self.swap.devices().behind_store(DeviceMask::NONE));
        if devices.is_empty() {
            return 0;
        }
        let space = self.swap.space();
        let mut entries = [None; RUN];
        let count = self.oldest(&mut demotion, &mut entries);
        let mut run = &entries[..count];
        let mut moved = 0;
        let mut size = run.len();
        while !run.is_empty() {
            size = size.min(run.len());
            let result = self.swap.with(|context| {
                let (decoder, pages) = context.split();
                let pages = Context::pages(pages, size).ok_or(WriteError::NoMemory)?;
                space.demote_run(&run[..size], decoder, pages, devices)
            });
            match result {
                Ok(number) => {
                    moved += number;
                    run = &run[size..];
                }
                Err(WriteError::NoSlots) if self.swap.grow(devices) == Growth::Added => {}
                Err(WriteError::NoSlots | WriteError::OrderNotTaken) if size > 1 => size /= 2,
                Err(_) => {
                    full = devices.iter().fold(full, DeviceMask::with);
                    devices = self.swap.devices().behind_store(full);
                    size = run.len();
                    if devices.is_empty() {
                        break;
                    }
                }
            }
        }
        entries.iter().flatten().for_each(|&entry| space.put(entry, 1));
        add(&self.counters.demoted, moved);
        let store = space.mm_stat();
        if store.mem_used_total.saturating_sub(store.compr_data_size) * HOLES_SHARE
            > store.mem_used_total + (8 << 20)
        {
            space.compact(COMPACTION_BUDGET);
        }
        moved
    }

    /// Finds pages of the oldest generation, and takes a count of each entry, so that it keeps
    /// naming the same page.
    fn oldest(&self, demotion: &mut Demotion, entries: &mut [Option<SwapEntry>; RUN]) -> usize {
        let space = self.swap.space();
        let Some(oldest) = space.ages().oldest() else { return 0 };
        let (start, mut wrapped, mut count) = (demotion.cursor, false, 0);
        while count < RUN {
            let Some((entry, _)) = space.slots().swapoff_next(space.device(), demotion.cursor) else {
                if wrapped {
                    break;
                }
                (wrapped, demotion.cursor) = (true, 0);
                continue;
            };
            if wrapped && entry.offset() >= start {
                break;
            }
            demotion.cursor = entry.offset() + 1;
            let is_old =
                |age: folioswap_space::space::ages::Generation| age == oldest || age.is_older_than(oldest);
            if space.generation(entry).is_some_and(is_old) && space.duplicate(entry, 1).is_ok() {
                entries[count] = Some(entry);
                count += 1;
            }
        }
        count
    }
}

/// The thread's next task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// Memory is short.
    Memory,
    /// Memory has not been short for a while: empty clusters of devices may go back.
    Clusters,
    /// The thread ends.
    End,
}

/// Time without a shortage after which empty clusters go back, and between two looks for them.
const GIVE_BACK: Duration = Duration::from_secs(1);
/// Empty clusters of a device that are kept for the next writes.
const CLUSTERS_KEPT: usize = 2;

/// Wakes and stops the thread.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    wanted: AtomicBool,
    state: Mutex<bool>,
    changed: Condvar,
    /// Held while the thread reclaims.
    pub(crate) working: Mutex<()>,
}

impl Signal {
    /// Wakes the thread, because memory is short. Cost: one load while the thread is at work.
    pub(crate) fn wake(&self) {
        if !self.wanted.load(SeqCst) && !self.wanted.swap(true, SeqCst) {
            drop(self.state.lock().unwrap_or_else(PoisonError::into_inner));
            self.changed.notify_one();
        }
    }

    fn stop(&self) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Sleeps until there is a task.
    fn wait(&self) -> Due {
        let mut stop = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if *stop {
                return Due::End;
            }
            if self.wanted.load(SeqCst) {
                return Due::Memory;
            }
            let (held, waited) =
                self.changed.wait_timeout(stop, GIVE_BACK).unwrap_or_else(PoisonError::into_inner);
            stop = held;
            if waited.timed_out() {
                return Due::Clusters;
            }
        }
    }
}

/// The thread that keeps some memory free.
#[derive(Debug)]
pub(crate) struct Reclaimer {
    pub(crate) signal: Arc<Signal>,
    thread: Option<JoinHandle<()>>,
}

impl Reclaimer {
    pub(crate) fn start(space: Weak<ShmemSpace>) -> std::io::Result<Reclaimer> {
        let signal = Arc::<Signal>::default();
        let own = signal.clone();
        let work = move || {
            loop {
                let due = own.wait();
                let Some(space) = space.upgrade() else { break };
                let _working = lock(&own.working);
                match due {
                    Due::Memory => {
                        own.wanted.store(false, SeqCst);
                        space.shrink(space.watermarks().low, Effort::Some);
                    }
                    Due::Clusters => {
                        space.swap.devices().give_back(CLUSTERS_KEPT, space.swap.space().file_space());
                    }
                    Due::End => break,
                }
            }
        };
        let thread = std::thread::Builder::new().name("folioswap-evict".into()).spawn(work)?;
        Ok(Reclaimer { signal, thread: Some(thread) })
    }
}

impl Drop for Reclaimer {
    fn drop(&mut self) {
        self.signal.stop();
        if let Some(thread) = self.thread.take() {
            // The thread itself may drop the last reference to the space.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}
