//! The environment that an exec'd image needs to stay in the group.

use core::ffi::{CStr, c_char};
use folioswap_group::protocol::GROUP_VARIABLE;

/// The variable that names the group.
pub const GROUP: &[u8] = GROUP_VARIABLE.as_bytes();
/// The variable that names the agent.
pub const PRELOAD: &[u8] = b"LD_PRELOAD";

/// Finds a variable's value.
///
/// # Safety
/// `environment` must be null or a null-terminated array of terminated strings that live on.
pub unsafe fn find<'a>(environment: *const *const c_char, name: &[u8]) -> Option<&'a [u8]> {
    // SAFETY: by contract.
    unsafe { position(environment, name) }.map(|(_, value)| value)
}

/// Finds a variable's index and value.
///
/// # Safety
/// As [`find`].
pub unsafe fn position<'a>(environment: *const *const c_char, name: &[u8]) -> Option<(usize, &'a [u8])> {
    if environment.is_null() {
        return None;
    }
    let mut index = 0;
    loop {
        // SAFETY: within the array, by contract.
        let entry = unsafe { *environment.add(index) };
        if entry.is_null() {
            return None;
        }
        // SAFETY: a terminated string, by contract.
        let text = unsafe { CStr::from_ptr(entry) }.to_bytes();
        if let Some(value) = text.strip_prefix(name).and_then(|rest| rest.strip_prefix(b"=")) {
            return Some((index, value));
        }
        index += 1;
    }
}

/// How many strings an array holds.
///
/// # Safety
/// As [`find`].
pub unsafe fn count(array: *const *const c_char) -> usize {
    let mut count = 0;
    // SAFETY: by contract.
    while !array.is_null() && unsafe { !(*array.add(count)).is_null() } {
        count += 1;
    }
    count
}

/// The agent's own path among those of an LD_PRELOAD: `/proc/PID/fd/N`, the supervisor's copy in memory, which is the first.
pub fn agent_of(preload: &[u8]) -> &[u8] {
    preload.split(|&byte| byte == b':' || byte == b' ').next().unwrap_or_default()
}
