//! What all objects of one mount share: the limit, folio memory, swap space.

use crate::error::{CreateError, ShmemError};
use crate::folio::{Folios, flag};
use crate::frames::{Frames, PAGE};
use crate::lru::Lru;
use crate::options::Options;
use folioswap_slots::Order;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Relaxed},
};

/// Addresses for folios, as a multiple of the limit: see [`crate::frames`].
const ADDRESSES: u64 = 4;

/// Folio memory, swap space and reclaim of one mount; shared by its objects.
pub struct ShmemSpace {
    options: Options,
    pub(crate) folios: Folios,
    pub(crate) frames: Frames,
    pub(crate) lru: Lru,
    /// Pages of content of all objects, resident or not, and the most there may be.
    content: AtomicU64,
    content_max: u64,
    /// Bytes of the nodes of all maps.
    pub(crate) nodes: Arc<AtomicU64>,
}

/// Figures of a space. Counters carry the kernel's names and count since the space was made; sizes are in bytes.
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
    /// Content of all objects, resident or not.
    pub content: u64,
    /// The most content there may be (tmpfs `size=`); `None`: as much as finds a place.
    pub content_max: Option<u64>,
}

impl ShmemSpace {
    /// An empty space. Costs addresses and a few pages of memory.
    ///
    /// # Errors
    /// [`CreateError`], which says what to do.
    pub fn new(options: Options) -> Result<Arc<ShmemSpace>, CreateError> {
        if options.limit < Options::LEAST_LIMIT {
            return Err(CreateError::LimitTooSmall { given: options.limit, least: Options::LEAST_LIMIT });
        }
        let no_addresses = || CreateError::System {
            doing: "reserving addresses for folios",
            error: std::io::Error::from(std::io::ErrorKind::OutOfMemory),
        };
        let blocks = (options.limit * ADDRESSES).div_ceil(2 << 20);
        let count = u32::try_from(blocks * 512).map_err(|_| no_addresses())?;
        Ok(Arc::new(ShmemSpace {
            folios: Folios::new(count).ok_or_else(no_addresses)?,
            frames: Frames::new(count).ok_or_else(no_addresses)?,
            lru: Lru::new(),
            content: AtomicU64::new(0),
            content_max: options.size.map_or(u64::MAX, |size| size / PAGE as u64),
            nodes: Arc::new(AtomicU64::new(0)),
            options,
        }))
    }

    /// The figures now. Each is exact; together they are a moment's picture only while nobody else is at work.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            used: self.used(),
            limit: self.options.limit,
            folios: self.frames.used_pages() * PAGE as u64,
            idle: self.frames.idle_pages() * PAGE as u64,
            metadata: self.metadata(),
            content: self.content.load(Relaxed) * PAGE as u64,
            content_max: self.options.size,
        }
    }

    fn metadata(&self) -> u64 {
        self.nodes.load(Relaxed) + self.frames.metadata()
    }

    /// Memory in use without what could be given back at once.
    fn used(&self) -> u64 {
        self.frames.used_pages() * PAGE as u64 + self.metadata()
    }

    /// Room for more content under `size`.
    pub(crate) fn charge_content(&self, pages: u64) -> Result<(), ShmemError> {
        let fits = |now: u64| now.checked_add(pages).filter(|&then| then <= self.content_max);
        self.content.fetch_update(AcqRel, Relaxed, fits).map(|_| ()).map_err(|_| ShmemError::NoSpace)
    }

    pub(crate) fn uncharge_content(&self, pages: u64) {
        self.content.fetch_sub(pages, Relaxed);
    }

    /// A new folio within the limit, held exclusively by the caller, in no map; its contents are anything. `None`: there is no room for
    /// it.
    pub(crate) fn new_folio(&self, order: Order) -> Option<u32> {
        let bytes = (PAGE as u64) << order.index();
        if self.used() + bytes > self.options.limit {
            return None;
        }
        let frame = self.frames.take(&self.folios, order)?;
        // Who still has an old number of this frame may hold it for a moment, to find that it is another folio's.
        self.folios.lock(frame);
        self.folios.of(frame).begin(order, flag::REFERENCED);
        self.give_idle_back();
        Some(frame)
    }

    /// Frees a folio that is in no map and not in the swap cache. The caller holds it exclusively, and then no more.
    pub(crate) fn free_folio(&self, frame: u32) {
        let folio = self.folios.of(frame);
        self.lru.remove(&self.folios, frame);
        let order = folio.order();
        folio.begin(Order::ZERO, 0);
        self.folios.unlock(frame);
        self.frames.free(&self.folios, frame, order);
    }

    fn give_idle_back(&self) {
        let room = self.options.limit.saturating_sub(self.used()) / PAGE as u64;
        if self.frames.idle_pages() > room {
            self.frames.trim(&self.folios, room / 2);
        }
    }
}

impl std::fmt::Debug for ShmemSpace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShmemSpace").field("options", &self.options).finish_non_exhaustive()
    }
}
