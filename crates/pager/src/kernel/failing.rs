//! Calls that fail at random, for tests: one call in so many fails as the kernel may let it fail,
//! and does nothing.
//!
//! Errors that pass are given alone: EAGAIN, EBUSY, ENOMEM, a part that is done. What fails for
//! good (a device, a descriptor) has tests of its own. Off, each call costs a load.

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Relaxed, Release},
};
use rustix::io::Errno;

/// One in so many calls fails; 0: none does.
static RATE: AtomicU32 = AtomicU32::new(0);

/// The number of the calls that were asked about, times [`STEP`], from the seed on.
static STATE: AtomicU64 = AtomicU64::new(0);

/// The increment of splitmix64.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Lets one call in `rate` fail from here on, by a series that begins with `seed`. 0: none.
pub fn set(seed: u64, rate: u32) {
    STATE.store(seed, Relaxed);
    RATE.store(rate, Release);
}

/// How a call is to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure(u64);

impl Failure {
    /// One of these, by chance.
    pub(crate) fn one_of<T: Copy, const N: usize>(self, kinds: [T; N]) -> T {
        kinds[(self.0 % N as u64) as usize]
    }
}

/// Whether the call that the caller is about to make is to fail.
pub(crate) fn next() -> Option<Failure> {
    match RATE.load(Relaxed) {
        0 => None,
        rate => {
            let mixed = splitmix(STATE.fetch_add(STEP, Relaxed));
            mixed.is_multiple_of(u64::from(rate)).then_some(Failure(mixed >> 32))
        }
    }
}

/// Fails as the call that the caller is about to make is to fail, if it is: with one of these
/// errors.
pub(crate) fn with_one_of<const N: usize>(errors: [Errno; N]) -> Result<(), Errno> {
    next().map_or(Ok(()), |failure| Err(failure.one_of(errors)))
}

fn splitmix(state: u64) -> u64 {
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests;
