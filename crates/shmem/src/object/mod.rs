//! One object: an index of folios and swap entries, and its size.

mod allocate;
mod find;
mod page_out;
mod read;
mod remove;
mod seek;
mod write;

pub use allocate::Allocation;
pub use read::Lent;

use crate::error::ShmemError;
use crate::folio::Folio;
use crate::frames::PAGE;
use crate::map::Map;
use crate::options::{HugeAdvice, HugePolicy};
use crate::space::ShmemSpace;
use crate::sync::{AcqRel, Acquire, AtomicBool, AtomicU64, Relaxed, RwLock};
use crate::variant::{Current, Variant};
pub(crate) use find::{Held, Hold};
use std::marker::PhantomData;
use std::sync::{Arc, Weak};

/// The content of one file. Dropping it frees its folios and its swap entries.
///
/// Reads and writes of one page exclude each other. A longer read or write is not atomic for other
/// threads. Sizes and offsets are in bytes.
pub struct ObjectOf<V: Variant> {
    pub(crate) space: Arc<ShmemSpace>,
    pub(crate) inner: Arc<Inner>,
    role: Role,
    variant: PhantomData<fn() -> V>,
}

/// Whose an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// This handle owns the content: dropping the handle frees it.
    Owner,
    /// Another handle owns the content, and may be dropped at any time. Then the map is empty, and
    /// nothing enters it any more.
    Visitor,
}

/// The content of one file, with today's swap-in.
pub type ShmemObject = ObjectOf<Current>;

/// State of an object that reclaim needs too.
pub(crate) struct Inner {
    pub(crate) map: Map,
    size: AtomicU64,
    /// Pages in the map, resident or swapped out.
    pub(crate) pages: AtomicU64,
    /// Held for reading by writers, for writing by truncation and holes.
    content: RwLock<()>,
    huge: HugePolicy,
    advised: AtomicBool,
    /// Pages that are swapped out or about to be, and whether the object is on the swap list.
    pub(crate) swapped: AtomicU64,
    pub(crate) listed: AtomicBool,
    pub(crate) weak: Weak<Inner>,
}

/// The largest size, 2^63 - 1.
const SIZE_MAX: u64 = i64::MAX as u64;

pub(crate) fn index_of(offset: u64) -> u64 {
    offset / PAGE as u64
}

/// The end of a range; an error above the largest size.
pub(crate) fn end_of(offset: u64, len: u64) -> Result<u64, ShmemError> {
    offset.checked_add(len).filter(|&end| end <= SIZE_MAX).ok_or(ShmemError::TooLarge)
}

impl<V: Variant> ObjectOf<V> {
    /// An empty object of size 0.
    pub fn new(space: &Arc<ShmemSpace>, huge: HugePolicy) -> ObjectOf<V> {
        let inner = |weak: &Weak<Inner>| Inner {
            map: Map::new(space.nodes.clone()),
            size: AtomicU64::new(0),
            pages: AtomicU64::new(0),
            content: RwLock::new(()),
            huge,
            advised: AtomicBool::new(false),
            swapped: AtomicU64::new(0),
            listed: AtomicBool::new(false),
            weak: weak.clone(),
        };
        let inner = Arc::new_cyclic(inner);
        ObjectOf { space: space.clone(), inner, role: Role::Owner, variant: PhantomData }
    }

    /// A handle on an object of another owner, to swap its pages in. A visitor never writes or
    /// makes pages.
    pub(crate) fn visit(space: &Arc<ShmemSpace>, inner: Arc<Inner>) -> ObjectOf<V> {
        ObjectOf { space: space.clone(), inner, role: Role::Visitor, variant: PhantomData }
    }

    /// Its size, in bytes.
    pub fn size(&self) -> u64 {
        self.inner.size.load(Acquire)
    }

    /// Pages of content, resident or swapped out; `st_blocks` is eight times that.
    pub fn pages(&self) -> u64 {
        self.inner.pages.load(Relaxed)
    }

    /// Sets the advice that [`HugePolicy::Advise`] follows for new pages from now on.
    pub fn advise(&self, advice: HugeAdvice) {
        self.inner.advised.store(advice == HugeAdvice::Huge, Relaxed);
    }

    /// The space that the object belongs to.
    pub fn space(&self) -> &Arc<ShmemSpace> {
        &self.space
    }

    pub(crate) fn folio(&self, frame: u32) -> &Folio {
        self.space.folios.of(frame)
    }

    fn grow_to(&self, size: u64) {
        self.inner.size.fetch_max(size, AcqRel);
    }
}

impl<V: Variant> std::fmt::Debug for ObjectOf<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShmemObject").field("size", &self.size()).field("pages", &self.pages()).finish()
    }
}

impl<V: Variant> Drop for ObjectOf<V> {
    fn drop(&mut self) {
        if self.role == Role::Visitor {
            return;
        }
        self.inner.size.store(0, Relaxed);
        self.remove_pages(0, u64::MAX);
        if self.inner.listed.load(Relaxed) {
            self.space.swap_list.prune(&self.inner);
        }
    }
}
