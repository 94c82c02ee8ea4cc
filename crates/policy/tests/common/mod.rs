//! The common part of the page models: a page word under loom, and the end of a write-back.

use folioswap_policy::page::{PageState, PageWord};
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicU64, Ordering::*};
use loom::thread;

/// A page word, as a block of the page table holds it.
pub struct Word(AtomicU64);

impl Word {
    pub fn new(word: PageWord) -> Self {
        Word(AtomicU64::new(word.bits()))
    }

    pub fn load(&self) -> PageWord {
        PageWord::from_bits(self.0.load(Acquire))
    }

    pub fn replace(&self, old: PageWord, new: PageWord) -> bool {
        self.0.compare_exchange(old.bits(), new.bits(), AcqRel, Acquire).is_ok()
    }

    /// Writes the word. No other thread may change it now.
    pub fn set(&self, word: PageWord) {
        self.0.store(word.bits(), Release);
    }

    /// Ends a write-back as the pager's `finish` does: the bytes are on the device and out of the
    /// swap cache. Either the page is stored, or another thread took it back or gave it up; then
    /// the evictor frees its entry.
    #[allow(dead_code, reason = "clean pages leave without a write-back")]
    pub fn finish(&self, free: impl FnOnce()) {
        loop {
            let word = self.load();
            match word.state() {
                PageState::Leaving(_) => {
                    if self.replace(word, word.written().unwrap()) {
                        return;
                    }
                }
                PageState::Returning(_) => thread::yield_now(),
                _ => return free(),
            }
        }
    }
}

/// UFFDIO_COPY of zeroes to `mapped`; the kernel refuses where a page is. Returns whether it was
/// empty.
#[allow(dead_code, reason = "models of clean pages have no first touch")]
pub fn put_zeroes(mapped: &Mutex<Option<u64>>) -> bool {
    let mut mapped = mapped.lock().unwrap();
    let was_empty = mapped.is_none();
    mapped.get_or_insert(0);
    was_empty
}
