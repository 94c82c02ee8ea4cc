//! A part of a swap's limit that is set aside for another user of the same limit.

use crate::inner::Inner;
use crate::{Error, Swap};
use std::sync::Arc;

/// Bytes that count towards the limit of a swap until this is dropped.
pub(crate) struct Aside {
    inner: Arc<Inner>,
    bytes: u64,
}

impl Swap {
    /// Sets `bytes` of the limit, and of the limits around it, aside. The evictor swaps out regions
    /// that exceed the rest.
    pub(crate) fn set_aside(&self, bytes: u64) -> Result<Aside, Error> {
        let inner = &self.0;
        inner.check_process()?;
        inner.check_open()?;
        inner.add_aside(bytes)?;
        Ok(Aside { inner: Arc::clone(inner), bytes })
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if self.inner.check_process().is_ok() {
            self.inner.take_aside(self.bytes);
        }
    }
}
