//! Memory for secrets: never swapped, never in a core dump, never in a forked child, and zeroed
//! before it is given back.
//!
//! Source: mlock(2); madvise(2) (`MADV_DONTDUMP`, `MADV_DONTFORK`).

use folioswap_group::units::PAGE_SIZE;
use ring::aead::{AES_256_GCM, Algorithm, CHACHA20_POLY1305, LessSafeKey, UnboundKey};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap_anonymous, munmap};
use rustix::rand::{GetRandomFlags, getrandom};
use std::ptr::NonNull;
use std::sync::atomic::{Ordering::SeqCst, compiler_fence};

/// Bytes of the stack that are overwritten after a key was made: more than making one uses.
const SCRUBBED: usize = 16 << 10;

/// The reason why there is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Memory could not be mapped, or not be locked.
    #[error("locking a page of memory: {0}")]
    Memory(Errno),
    /// The system gave no random bytes.
    #[error("random bytes: {0}")]
    Random(Errno),
    /// No thread could be started.
    #[error("no further thread can be started")]
    Thread,
}

/// A value in a mapping of its own that nothing else can read.
pub struct Locked<T> {
    value: NonNull<T>,
}

// SAFETY: the value is owned as by a box.
unsafe impl<T: Send> Send for Locked<T> {}
// SAFETY: as above; a shared reference reaches nothing but the value.
unsafe impl<T: Sync> Sync for Locked<T> {}

impl<T> Locked<T> {
    /// Zeroed memory for one value. `make` fills it in place, so that no copy of the value exists
    /// elsewhere.
    fn new(make: impl FnOnce(NonNull<T>) -> Result<(), KeyError>) -> Result<Self, KeyError> {
        const { assert!(size_of::<T>() <= PAGE_SIZE && align_of::<T>() <= PAGE_SIZE) };
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the mapping is new, at an address of the kernel's choice.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), PAGE_SIZE, access, MapFlags::PRIVATE) };
        let start = NonNull::new(start.map_err(KeyError::Memory)?).ok_or(KeyError::Memory(Errno::NOMEM))?;
        // SAFETY: the page is ours, and none of the calls changes its contents.
        let protected = unsafe {
            madvise(start.as_ptr(), PAGE_SIZE, Advice::LinuxDontDump)
                .and_then(|()| madvise(start.as_ptr(), PAGE_SIZE, Advice::LinuxDontFork))
                .and_then(|()| mlock(start.as_ptr(), PAGE_SIZE))
        };
        let value: NonNull<T> = start.cast();
        let made = protected.map_err(KeyError::Memory).and_then(|()| make(value));
        match made {
            Ok(()) => Ok(Locked { value }),
            Err(error) => {
                wipe(start.cast());
                // SAFETY: the page is ours, and nothing refers to it.
                let _ = unsafe { munmap(start.as_ptr(), PAGE_SIZE) };
                Err(error)
            }
        }
    }
}

impl<T> std::ops::Deref for Locked<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: `new` had the value filled in; it stays until the drop.
        unsafe { self.value.as_ref() }
    }
}

impl<T> Drop for Locked<T> {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the value any more, nor to its page afterwards.
        unsafe {
            self.value.drop_in_place();
            wipe(self.value.cast());
            let _ = munmap(self.value.as_ptr().cast(), PAGE_SIZE);
        }
    }
}

/// Zeroes a page by writes that are not optimised away.
fn wipe(page: NonNull<u8>) {
    for offset in 0..PAGE_SIZE {
        // SAFETY: the byte is within the caller's page.
        unsafe { page.as_ptr().add(offset).write_volatile(0) };
    }
    compiler_fence(SeqCst);
}

/// The cipher: AES-256-GCM where the processor has instructions for it, ChaCha20-Poly1305
/// elsewhere.
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
    let bytes = Locked::<[u8; 32]>::new(|bytes| {
        // SAFETY: the memory is zeroed, has room for 32 bytes, and is ours alone.
        fill(unsafe { &mut *bytes.as_ptr() })
    })?;
    let key = Locked::new(|key| {
        expand(cipher, &bytes, key);
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

/// Makes a key from its bytes, in place. [`scrub`] overwrites the copies that this leaves on the
/// stack.
#[inline(never)]
fn expand(cipher: &'static Algorithm, bytes: &[u8; 32], key: NonNull<LessSafeKey>) {
    let unbound = UnboundKey::new(cipher, bytes).expect("32 bytes are what both ciphers take");
    // SAFETY: the memory has room for one key and is ours alone.
    unsafe { key.write(LessSafeKey::new(unbound)) };
}

/// Overwrites the stack below the caller.
#[inline(never)]
fn scrub() {
    let mut stack = [0_u8; SCRUBBED];
    for byte in &mut stack {
        // SAFETY: the byte belongs to our own array.
        unsafe { std::ptr::from_mut(byte).write_volatile(0) };
    }
    std::hint::black_box(&stack);
}

#[cfg(test)]
mod tests;
