//! Memory beside contents that counts towards the same limit, such as the inodes of a file system.

use crate::error::ShmemError;
use crate::space::{ShmemSpace, Urgency};
use crate::sync::Relaxed;

/// The share of the limit that stays for contents, so that they can always be read in.
const CONTENTS_SHARE: u64 = 8;

impl ShmemSpace {
    /// Counts `bytes` of memory that the caller takes elsewhere towards the limit, if there is
    /// room; contents leave to make it. At least an eighth of the limit stays for contents. The
    /// caller holds no lock that reclaim may need. Cost: an addition; without room, that of writing
    /// a page.
    ///
    /// # Errors
    /// `NoSpace`; nothing is counted then.
    pub fn try_charge_outside(&self, bytes: u64) -> Result<(), ShmemError> {
        let most = self.limit() - self.limit() / CONTENTS_SHARE;
        let fits = |now: u64| now.checked_add(bytes).filter(|&then| then <= most);
        self.nodes.fetch_update(Relaxed, Relaxed, fits).map_err(|_| ShmemError::NoSpace)?;
        if self.make_room(Urgency::Write) {
            return Ok(());
        }
        self.uncharge_outside(bytes);
        Err(ShmemError::NoSpace)
    }

    /// Counts `bytes` of memory that the caller takes elsewhere in any case. Contents leave to make
    /// room for it.
    pub fn charge_outside(&self, bytes: u64) {
        self.nodes.fetch_add(bytes, Relaxed);
    }

    /// Takes back `bytes` that were counted.
    pub fn uncharge_outside(&self, bytes: u64) {
        self.nodes.fetch_sub(bytes, Relaxed);
    }
}
