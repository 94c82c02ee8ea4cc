//! Memory beside contents that counts towards the same limit, such as the inodes of a file system.

use crate::space::ShmemSpace;
use std::sync::atomic::Ordering::Relaxed;

impl ShmemSpace {
    /// Counts memory that the caller takes elsewhere towards the limit, in bytes; contents leave to make room for it.
    pub fn charge_outside(&self, bytes: u64) {
        self.nodes.fetch_add(bytes, Relaxed);
    }

    /// Takes back what [`charge_outside`](Self::charge_outside) counted.
    pub fn uncharge_outside(&self, bytes: u64) {
        self.nodes.fetch_sub(bytes, Relaxed);
    }
}
