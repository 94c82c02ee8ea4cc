//! State that all objects of one mount share: the limit, folio memory, swap space.

use crate::counters::{Counters, Counts};
use crate::devices::DeviceFigures;
use crate::error::{CreateError, LimitError, SetTiersError, ShmemError};
use crate::folio::{Folios, flag};
use crate::frames::{BLOCK, Frames, PAGE};
use crate::lru::Lru;
use crate::options::Options;
use crate::reclaim::{Demotion, Effort, Reclaimer};
use crate::swap::Swap;
use crate::swap_list::SwapList;
use crate::sync::{AcqRel, AtomicU64, Mutex, Relaxed, lock, sleep, try_lock};
use folioswap_policy::readahead::SwapinReadahead;
use folioswap_policy::reclaim::watermarks::{Watermarks, grace};
use folioswap_slots::{FolioId, Order, SlotWord, SwapEntry};
use std::sync::Arc;
use std::time::Instant;

/// Addresses for folios, as a multiple of the limit: see [`crate::frames`].
const ADDRESSES: u64 = 4;
/// Bytes that a thread which must reclaim frees beyond its need.
const BATCH: u64 = 128 << 10;
/// Bytes that one who waits for a lower limit has leave at a time.
const HELPED: u64 = 4 << 20;
/// The share of the limit that free folio memory may keep for reuse.
const IDLE_SHARE: u64 = 16;
/// Rounds of reclaim without any success after which there is no room, unless a full scan of the
/// lists finds some.
const ROUNDS: u32 = 8;

/// Folio memory, swap space and reclaim of one mount; shared by its objects.
pub struct ShmemSpace {
    limit: AtomicU64,
    limit_max: u64,
    /// The most that writes and swap-in may use while a lower limit is not reached yet, in bytes:
    /// the highest one since the space was last within its limit.
    tolerated: AtomicU64,
    pub(crate) folios: Folios,
    pub(crate) frames: Frames,
    pub(crate) lru: Lru,
    /// Pages of content of all objects, resident or not, and their limit.
    content: AtomicU64,
    content_max: AtomicU64,
    /// Bytes of the nodes of all maps.
    pub(crate) nodes: Arc<AtomicU64>,
    pub(crate) swap: Swap,
    pub(crate) swap_list: SwapList,
    /// Held during a swapoff: one at a time.
    pub(crate) swapoffs: Mutex<()>,
    pub(crate) counters: Counters,
    pub(crate) readahead: Mutex<SwapinReadahead>,
    pub(crate) demotion: Mutex<Demotion>,
    /// Set when a full scan of the lists freed nothing: until then no other one is tried.
    full_until: Mutex<Option<Instant>>,
    /// None in tests that want no other thread at work.
    pub(crate) reclaimer: Option<Reclaimer>,
}

/// How badly a folio is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Only if there is room as it is.
    Spare,
    /// Memory is reclaimed for it.
    Large,
    /// Memory is reclaimed, also a few times over if other threads take it.
    Write,
    /// The limit may be exceeded a little rather than fail, because the content has a right to be
    /// read.
    SwapIn,
}

/// Whether a space has a thread of its own that reclaims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Background {
    Thread,
    #[cfg_attr(not(test), allow(dead_code, reason = "for tests that go step by step"))]
    Nobody,
}

/// Figures of a space. Counters carry the kernel's names and count since the space was made; sizes
/// are in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Memory in use: folios, compressed store, metadata. Kept at the limit.
    pub used: u64,
    /// The limit.
    pub limit: u64,
    /// Of it: resident folios.
    pub folios: u64,
    /// Of it: free folio memory not yet given back.
    pub idle: u64,
    /// Of it: tables.
    pub metadata: u64,
    /// Of it: the compressed store, holes and tables of it included.
    pub store: u64,
    /// Content in the compressed store, uncompressed size.
    pub stored: u64,
    /// Content on devices with clusters: files, block devices, plain RAM.
    pub on_file: u64,
    /// Content of all objects, resident or not.
    pub content: u64,
    /// Limit on content (tmpfs `size=`); `None`: as much as finds a place.
    pub content_max: Option<u64>,
    /// Counts of events.
    pub counts: Counts,
}

impl ShmemSpace {
    /// An empty space. Cost: addresses and a few pages of memory.
    ///
    /// # Errors
    /// [`CreateError`], which names the remedy.
    pub fn new(options: Options) -> Result<Arc<ShmemSpace>, CreateError> {
        ShmemSpace::with(options, Background::Thread)
    }

    pub(crate) fn with(options: Options, background: Background) -> Result<Arc<ShmemSpace>, CreateError> {
        if options.limit < Options::LEAST_LIMIT {
            return Err(CreateError::LimitTooSmall { given: options.limit, least: Options::LEAST_LIMIT });
        }
        let no_addresses = || CreateError::System {
            doing: "reserving addresses for folios",
            error: std::io::Error::from(std::io::ErrorKind::OutOfMemory),
        };
        let reserved = |limit: u64| {
            let blocks = limit.saturating_mul(ADDRESSES).div_ceil(u64::from(BLOCK) * PAGE as u64);
            let count = u32::try_from(blocks * u64::from(BLOCK)).ok()?;
            Some((Folios::new(count)?, Frames::new(count)?, limit))
        };
        // Where addresses are scarce (`ulimit -v`, no overcommit) the limit cannot be raised.
        let (folios, frames, limit_max) = reserved(options.limit_max.max(options.limit))
            .or_else(|| reserved(options.limit))
            .ok_or_else(no_addresses)?;
        let mut space = ShmemSpace {
            folios,
            frames,
            tolerated: AtomicU64::new(options.limit),
            lru: Lru::new(),
            content: AtomicU64::new(0),
            content_max: AtomicU64::new(options.size.map_or(u64::MAX, |size| size / PAGE as u64)),
            nodes: Arc::new(AtomicU64::new(0)),
            swap: Swap::new(options.devices)?,
            swapoffs: Mutex::new(()),
            swap_list: SwapList::default(),
            counters: Counters::default(),
            readahead: Mutex::new(SwapinReadahead::new()),
            demotion: Mutex::new(Demotion::default()),
            full_until: Mutex::new(None),
            reclaimer: None,
            limit: AtomicU64::new(options.limit),
            limit_max,
        };
        let mut failed = None;
        let space = Arc::new_cyclic(|own| {
            if background == Background::Thread {
                match Reclaimer::start(own.clone()) {
                    Ok(reclaimer) => space.reclaimer = Some(reclaimer),
                    Err(error) => failed = Some(error),
                }
            }
            space
        });
        match failed {
            Some(error) => Err(CreateError::System { doing: "starting a thread", error }),
            None => Ok(space),
        }
    }

    /// The figures now. Each is exact; together they are one moment's picture only while no other
    /// thread is at work.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            used: self.used(),
            limit: self.limit(),
            folios: self.frames.used_pages() * PAGE as u64,
            idle: self.frames.idle_pages() * PAGE as u64,
            metadata: self.metadata(),
            store: self.swap.space().mm_stat().mem_used_total,
            stored: self.swap.space().mm_stat().orig_data_size,
            on_file: self.swap.file_bytes(),
            content: self.content.load(Relaxed) * PAGE as u64,
            content_max: Some(self.content_max.load(Relaxed))
                .filter(|&pages| pages != u64::MAX)
                .map(|pages| pages * PAGE as u64),
            counts: self.counters.now(),
        }
    }

    /// State of each device, in the order in which they were given.
    pub fn devices(&self) -> Vec<DeviceFigures> {
        let space = self.swap.space();
        self.swap.devices().figures(space.mm_stat().objects * PAGE as u64, space.file_space())
    }

    /// Lets pages that leave from now on go to the devices of these tiers alone: priorities with
    /// commas between them, or `all`. Pages that are on others stay there.
    ///
    /// # Errors
    /// [`SetTiersError`]; the tiers are as before.
    pub fn set_tiers(&self, list: &str) -> Result<(), SetTiersError> {
        // Whoever takes a device off has seen that another one takes pages.
        let Some(_no_device_leaves) = try_lock(&self.swapoffs) else { return Err(SetTiersError::Busy) };
        Ok(self.swap.devices().set_tiers(list)?)
    }

    /// The priorities of the tiers that take pages, the highest first.
    pub fn tiers(&self) -> Vec<i32> {
        self.swap.devices().tiers()
    }

    pub(crate) fn metadata(&self) -> u64 {
        let space = self.swap.space();
        self.nodes.load(Relaxed)
            + self.frames.metadata()
            + space.metadata_bytes()
            + self.swap.working_memory()
    }

    /// Memory in use, without memory that could be given back at once.
    pub(crate) fn used(&self) -> u64 {
        self.frames.used_pages() * PAGE as u64 + self.metadata() + self.swap.space().store_bytes()
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    pub(crate) fn watermarks(&self) -> Watermarks {
        Watermarks::of(self.limit())
    }

    /// Sets another limit. Where more is in use, contents leave from now on: the space is
    /// [`within`](Self::is_within_limit) its limit soon, or never, if they find no room. Cost: that
    /// of waking a thread.
    ///
    /// # Errors
    /// The limit is below [`Options::LEAST_LIMIT`], or above the space's
    /// [`limit_max`](Options::limit_max).
    pub fn set_limit(&self, limit: u64) -> Result<(), LimitError> {
        if limit < Options::LEAST_LIMIT {
            return Err(LimitError::TooSmall { least: Options::LEAST_LIMIT });
        }
        if limit > self.limit_max {
            return Err(LimitError::TooLarge { most: self.limit_max });
        }
        self.tolerated.fetch_max(self.limit(), Relaxed);
        self.limit.store(limit, Relaxed);
        // A scan that found nothing for the old limit says nothing about this one.
        *lock(&self.full_until) = None;
        self.is_within_limit();
        Ok(())
    }

    /// Whether no more is in use than the limit; otherwise the thread that reclaims is woken.
    pub fn is_within_limit(&self) -> bool {
        let limit = self.limit();
        let is_within = self.used() <= limit;
        if is_within {
            self.tolerated.store(limit, Relaxed);
        }
        if !is_within && let Some(reclaimer) = &self.reclaimer {
            reclaimer.signal.wake();
        }
        is_within
    }

    /// [`ShmemSpace::is_within_limit`], for one who waits for that: the caller has some content
    /// leave itself, beside the thread that reclaims. Cost: up to that of compressing 4 MiB.
    pub fn help_within_limit(&self) -> bool {
        if self.is_within_limit() {
            return true;
        }
        self.shrink(self.limit().max(self.used().saturating_sub(HELPED)), Effort::Some);
        self.is_within_limit()
    }

    /// Sets another limit on contents (tmpfs `size=`), in bytes, rounded down to pages.
    ///
    /// # Errors
    /// There is more content; the old limit holds then.
    pub fn set_size(&self, bytes: u64) -> Result<(), LimitError> {
        let (pages, content) = (bytes / PAGE as u64, self.content.load(Relaxed));
        if pages < content {
            return Err(LimitError::TooSmall { least: content * PAGE as u64 });
        }
        self.content_max.store(pages, Relaxed);
        Ok(())
    }

    /// Checks the invariants of the swap space, for tests: no other thread may be at work (the
    /// thread that reclaims stops for it). Cost: a walk of all slots.
    ///
    /// # Errors
    /// The invariant that does not hold.
    pub fn validate(&self) -> Result<(), folioswap_space::space::validate::Broken> {
        let _stopped = self.reclaimer.as_ref().map(|reclaimer| lock(&reclaimer.signal.working));
        self.swap.space().validate().map(|_| ())
    }

    /// Counts more content towards `size`.
    pub(crate) fn charge_content(&self, pages: u64) -> Result<(), ShmemError> {
        let most = self.content_max.load(Relaxed);
        let fits = |now: u64| now.checked_add(pages).filter(|&then| then <= most);
        self.content.fetch_update(AcqRel, Relaxed, fits).map(|_| ()).map_err(|_| ShmemError::NoSpace)
    }

    /// Checks that all pages of a range of bytes could exist at once, with nothing else: each is
    /// resident or has a slot.
    pub(crate) fn check_range(&self, offset: u64, end: u64) -> Result<(), ShmemError> {
        let page = PAGE as u64;
        let space = self.swap.space();
        let slots = space.slots().device_info(space.device()).map_or(0, |info| info.pages);
        let most = self.content_max.load(Relaxed).min(slots.saturating_add(self.limit() / page));
        let pages = end.div_ceil(page).saturating_sub(offset / page);
        if pages > most { Err(ShmemError::NoSpace) } else { Ok(()) }
    }

    pub(crate) fn uncharge_content(&self, pages: u64) {
        self.content.fetch_sub(pages, Relaxed);
    }

    /// A new folio within the limit, held exclusively by the caller, in no map, with arbitrary
    /// contents. `None` if there is no room for it, and none could be made.
    pub(crate) fn new_folio(&self, order: Order, urgency: Urgency) -> Option<u32> {
        // The frame counts from here on, so that no other thread takes the same room; the memory is
        // touched later.
        let frame = self.frames.take(&self.folios, order)?;
        if !self.make_room(urgency) {
            self.frames.free(&self.folios, frame, order);
            return None;
        }
        // A thread that still has an old number of this frame may hold it for a moment, to find
        // that it belongs to another folio.
        self.folios.lock(frame);
        self.folios.of(frame).begin(order, 0);
        self.give_idle_back();
        Some(frame)
    }

    pub(crate) fn make_room(&self, urgency: Urgency) -> bool {
        let used = self.used();
        if used > self.watermarks().high
            && let Some(reclaimer) = &self.reclaimer
        {
            reclaimer.signal.wake();
        }
        if used <= self.limit() {
            return true;
        }
        if urgency == Urgency::Spare {
            return false;
        }
        let mut round = 0;
        while self.used() > self.limit() {
            if self.shrink(self.limit() - BATCH, Effort::Some) > 0 {
                continue;
            }
            round += 1;
            let enough = match urgency {
                Urgency::SwapIn if self.used() <= self.limit() + grace(self.limit()) => return true,
                Urgency::SwapIn | Urgency::Write => round >= ROUNDS,
                Urgency::Spare | Urgency::Large => true,
            };
            if enough {
                if urgency == Urgency::Large {
                    return false;
                }
                if !self.free_by_full_scan() {
                    // A lower limit that is only tried must not fail what the old one allowed.
                    return self.used() <= self.tolerated.load(Relaxed);
                }
                continue;
            }
            // Other threads may hold the folios that could leave, or room that they do not need in
            // the end.
            sleep(std::time::Duration::from_millis(1));
        }
        true
    }

    /// Scans all folios before giving up. After a scan that freed nothing, none is tried for as
    /// long as that one took.
    fn free_by_full_scan(&self) -> bool {
        let now = Instant::now();
        if lock(&self.full_until).is_some_and(|until| now < until) {
            return false;
        }
        let freed = self.shrink(self.limit() - BATCH, Effort::FullScan) > 0;
        *lock(&self.full_until) = (!freed).then(|| Instant::now() + now.elapsed());
        freed
    }

    /// Gives up the stored copy of a folio, if it has one, because it is about to be written to,
    /// split or freed. The caller holds it exclusively.
    pub(crate) fn give_copy_up(&self, frame: u32) {
        let folio = self.folios.of(frame);
        if folio.has(flag::CLEAN) {
            folio.clear(flag::CLEAN);
            if let Some(entry) = folio.entry() {
                folio.set_entry(None);
                self.swap.space().free_folio(entry, folio.order().slots(), FolioId(frame));
            }
        }
    }

    /// Frees the slots of entries that are in no map any more, and their cached folios.
    pub(crate) fn free_swap(&self, entry: SwapEntry, pages: u32) {
        let space = self.swap.space();
        space.put(entry, pages);
        for step in 0..pages {
            let Some(entry) = entry.checked_add(step.into()) else { continue };
            let SlotWord::Cached { folio, count: 0, .. } = space.slots().word(entry) else { continue };
            // The folio has no owner by now. If another thread holds it just now, that thread will
            // find that it is not wanted, and reclaim comes to it.
            let cached = self.folios.of(folio.0);
            if !cached.try_lock() {
                continue;
            }
            let first = entry.round_down(cached.order());
            let is_unused =
                cached.object.load(Relaxed) == 0 && cached.entry().is_some() && cached.entry() == first;
            if is_unused {
                self.drop_cached(folio.0);
            } else {
                self.folios.unlock(folio.0);
            }
        }
    }

    /// Frees a folio that is in no map and not in the swap cache. The caller holds it exclusively,
    /// and afterwards no more.
    pub(crate) fn free_folio(&self, frame: u32) {
        let folio = self.folios.of(frame);
        self.lru.remove(&self.folios, frame);
        let order = folio.order();
        debug_assert!(folio.entry().is_none(), "its slots are free, or another's");
        folio.begin(Order::ZERO, 0);
        self.folios.unlock(frame);
        self.frames.free(&self.folios, frame, order);
        let keep = self.limit() / IDLE_SHARE + (1 << 20);
        if self.frames.idle_pages() * PAGE as u64 > keep {
            self.frames.trim(&self.folios, keep / 2 / PAGE as u64);
        }
    }

    fn give_idle_back(&self) {
        let room = self.limit().saturating_sub(self.used()) / PAGE as u64;
        if self.frames.idle_pages() > room {
            self.frames.trim(&self.folios, room / 2);
        }
    }
}

impl std::fmt::Debug for ShmemSpace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShmemSpace").field("limit", &self.limit()).finish_non_exhaustive()
    }
}
