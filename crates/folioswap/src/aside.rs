//! A part of a swap's limit that is set aside for something else within it.

use crate::swap::Inner;
use crate::{Error, LEAST_LIMIT, Swap};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

/// Counts towards the limit of a swap until it is dropped.
pub(crate) struct Aside {
    inner: Arc<Inner>,
    bytes: u64,
}

impl Swap {
    /// Sets so much of the limit aside: what regions have of it is swapped out in the background.
    pub(crate) fn set_aside(&self, bytes: u64) -> Result<Aside, Error> {
        let inner = &self.0;
        inner.check_process()?;
        inner.check_open()?;
        let limit = inner.limit();
        let fits = |aside: u64| {
            aside
                .checked_add(bytes)
                .filter(|all| all.checked_add(LEAST_LIMIT).is_some_and(|all| all <= limit))
        };
        let refused = |aside| Error::SetAside { bytes, aside, limit };
        inner.aside_bytes.fetch_update(AcqRel, Relaxed, fits).map_err(refused)?;
        inner.shared.segment.segment().header.unmanaged_bytes.fetch_add(bytes, Relaxed);
        inner.wake_evictors();
        Ok(Aside { inner: Arc::clone(inner), bytes })
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if self.inner.check_process().is_ok() {
            self.inner.shared.segment.segment().header.unmanaged_bytes.fetch_sub(self.bytes, Relaxed);
            self.inner.aside_bytes.fetch_sub(self.bytes, AcqRel);
        }
    }
}
