//! The rights of a pager thread: it begins with the program's, and gives up what it needs no more.
//!
//! Whoever can write the program's memory can run what he likes in the pager, and the program may
//! have given up rights since the pager was made.

use rustix::thread::set_no_new_privs;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// Gives up the right to see physical addresses: the kernel shows them in a pagemap to whoever
/// opened that with this right, for good.
pub fn see_no_frames() {
    let Ok(before) = capabilities(None) else { return };
    let [effective, permitted] =
        [before.effective, before.permitted].map(|set| set - CapabilitySet::SYS_ADMIN);
    // To give up is always allowed.
    let _ = set_capabilities(None, CapabilitySets { effective, permitted, ..before });
}

/// Gives up every capability of the calling thread, for good: no exec brings one back.
pub fn give_up() {
    let none = CapabilitySet::empty();
    let _ = set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none });
    let _ = set_no_new_privs(true);
}

#[cfg(test)]
mod tests;
