//! Memory for what nobody may see: never swapped, never in a core dump, never in a forked child, and zero before it is given back.
//!
//! Source: mlock(2); madvise(2) (`MADV_DONTDUMP`, `MADV_DONTFORK`).

use ring::aead::{AES_256_GCM, Algorithm, CHACHA20_POLY1305, LessSafeKey, UnboundKey};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap_anonymous, munmap};
use rustix::rand::{GetRandomFlags, getrandom};
use std::ptr::NonNull;
use std::sync::atomic::{Ordering::SeqCst, compiler_fence};

/// Bytes of the one mapping.
const PAGE: usize = 4096;
/// Bytes of the stack that are overwritten after a key was made: more than making one uses.
const SCRUBBED: usize = 16 << 10;

/// Why there is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Memory cannot be had, or not be locked.
    #[error("locking a page of memory: {0}")]
    Memory(Errno),
    /// The system gives no random bytes.
    #[error("random bytes: {0}")]
    Random(Errno),
    /// No thread can be had.
    #[error("no further thread can be started")]
    Thread,
}

/// A value in memory of its own that is kept from everybody else.
pub struct Locked<T> {
    place: NonNull<T>,
}

// SAFETY: it is owned like a box.
unsafe impl<T: Send> Send for Locked<T> {}
// SAFETY: as above; shared references only reach the value.
unsafe impl<T: Sync> Sync for Locked<T> {}

impl<T> Locked<T> {
    /// Zeroed memory for one value, filled in by `make`, which gets it as it is: so that no copy need be elsewhere.
    fn new(make: impl FnOnce(NonNull<T>) -> Result<(), KeyError>) -> Result<Self, KeyError> {
        const { assert!(size_of::<T>() <= PAGE && align_of::<T>() <= PAGE) };
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), PAGE, access, MapFlags::PRIVATE) };
        let start = NonNull::new(start.map_err(KeyError::Memory)?).ok_or(KeyError::Memory(Errno::NOMEM))?;
        // SAFETY: our own page; neither advice changes what is in it.
        let protected = unsafe {
            madvise(start.as_ptr(), PAGE, Advice::LinuxDontDump)
                .and_then(|()| madvise(start.as_ptr(), PAGE, Advice::LinuxDontFork))
                .and_then(|()| mlock(start.as_ptr(), PAGE))
        };
        let place: NonNull<T> = start.cast();
        let made = protected.map_err(KeyError::Memory).and_then(|()| make(place));
        match made {
            Ok(()) => Ok(Locked { place }),
            Err(error) => {
                wipe(start.cast());
                // SAFETY: ours, and nobody refers to it.
                let _ = unsafe { munmap(start.as_ptr(), PAGE) };
                Err(error)
            }
        }
    }
}

impl<T> std::ops::Deref for Locked<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: `new` had it filled in; it stays until the drop.
        unsafe { self.place.as_ref() }
    }
}

impl<T> Drop for Locked<T> {
    fn drop(&mut self) {
        // SAFETY: nobody refers to the value any more, nor to its page afterwards.
        unsafe {
            self.place.drop_in_place();
            wipe(self.place.cast());
            let _ = munmap(self.place.as_ptr().cast(), PAGE);
        }
    }
}

/// Zeroes a page in a way that is not optimised away.
fn wipe(page: NonNull<u8>) {
    for offset in 0..PAGE {
        // SAFETY: within the caller's page.
        unsafe { page.as_ptr().add(offset).write_volatile(0) };
    }
    compiler_fence(SeqCst);
}

/// The cipher: AES-256-GCM where the processor has instructions for it, ChaCha20-Poly1305 elsewhere.
pub fn best_cipher() -> &'static Algorithm {
    #[cfg(target_arch = "x86_64")]
    let has_instructions = std::is_x86_feature_detected!("aes") && std::is_x86_feature_detected!("pclmulqdq");
    #[cfg(not(target_arch = "x86_64"))]
    let has_instructions = cfg!(target_arch = "aarch64");
    if has_instructions { &AES_256_GCM } else { &CHACHA20_POLY1305 }
}

/// A new random key.
///
/// # Errors
/// [`KeyError`].
pub fn random_key(cipher: &'static Algorithm) -> Result<Locked<LessSafeKey>, KeyError> {
    let bytes = Locked::<[u8; 32]>::new(|place| {
        // SAFETY: zeroed memory for 32 bytes, ours alone.
        fill(unsafe { &mut *place.as_ptr() })
    })?;
    let key = Locked::new(|place| {
        expand(cipher, &bytes, place);
        scrub();
        Ok(())
    });
    drop(bytes);
    key
}

fn fill(bytes: &mut [u8; 32]) -> Result<(), KeyError> {
    let mut filled = 0;
    while filled < bytes.len() {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty()).map_err(KeyError::Random)?;
    }
    Ok(())
}

/// Makes a key of its bytes, at its place. What it leaves on the stack is overwritten by [`scrub`].
#[inline(never)]
fn expand(cipher: &'static Algorithm, bytes: &[u8; 32], place: NonNull<LessSafeKey>) {
    let unbound = UnboundKey::new(cipher, bytes).expect("32 bytes are what both ciphers take");
    // SAFETY: memory for one, ours alone.
    unsafe { place.write(LessSafeKey::new(unbound)) };
}

/// Overwrites the stack below the caller.
#[inline(never)]
fn scrub() {
    let mut stack = [0_u8; SCRUBBED];
    for byte in &mut stack {
        // SAFETY: a byte of our own array.
        unsafe { std::ptr::from_mut(byte).write_volatile(0) };
    }
    std::hint::black_box(&stack);
}

#[cfg(test)]
mod tests;
