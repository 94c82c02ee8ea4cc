//! Calls that change mappings, and a rewriting that needs them to stand still: one of the two sees
//! the other (Dekker), since each announces itself before it looks.

use crate::kernel::give_way;
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// Calls under way that may replace text.
static CALLS: AtomicU32 = AtomicU32::new(0);
/// 1 while a site is written.
static WRITING: AtomicU32 = AtomicU32::new(0);
/// Looks of a call at a rewriting, which takes some 20 microseconds. A vfork's child that was
/// killed within them is the only reason to wait in vain.
const LOOKS: u32 = 1 << 22;

/// No text is replaced while this lives.
pub(super) struct Still(());

/// Keeps calls for mappings waiting; none where one is under way.
pub(super) fn stand_still() -> Option<Still> {
    WRITING.store(1, SeqCst);
    let still = Still(());
    (CALLS.load(SeqCst) == 0).then_some(still)
}

impl Drop for Still {
    fn drop(&mut self) {
        WRITING.store(0, SeqCst);
    }
}

/// Before a call that may replace text.
pub(crate) fn calls_begin() {
    CALLS.fetch_add(1, SeqCst);
    for look in 0..LOOKS {
        if WRITING.load(SeqCst) == 0 {
            return;
        }
        if look % 64 == 63 {
            give_way();
        }
        core::hint::spin_loop();
    }
}

/// After it.
pub(crate) fn calls_end() {
    // It stays at zero where the child of a fork has forgotten a call to which it returns.
    let _ = CALLS.fetch_update(SeqCst, SeqCst, |calls| calls.checked_sub(1));
}

pub(super) fn forget_other_threads() {
    CALLS.store(0, SeqCst);
    WRITING.store(0, SeqCst);
}
