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
mod tests {
    use super::*;
    use std::fs;

    /// What a core dump of this process would hold: all mappings that are not excluded.
    fn dumped_ranges() -> Vec<(usize, usize)> {
        let maps = fs::read_to_string("/proc/self/smaps").expect("it");
        let mut ranges = Vec::new();
        let mut range = (0, 0);
        for line in maps.lines() {
            if let Some(flags) = line.strip_prefix("VmFlags:") {
                let has = |flag| flags.split_whitespace().any(|found| found == flag);
                if !has("dd") && !has("io") && has("rd") {
                    ranges.push(range);
                }
            } else if let Some((start, rest)) = line.split_once('-')
                && let (Ok(start), Some(end)) = (
                    usize::from_str_radix(start, 16),
                    rest.split_once(' ').and_then(|(end, _)| usize::from_str_radix(end, 16).ok()),
                )
            {
                range = (start, end);
            }
        }
        ranges
    }

    fn times_in_dump(needle: &[u8; 32]) -> usize {
        use std::os::unix::fs::FileExt;
        let memory = fs::File::open("/proc/self/mem").expect("it");
        let mut buffer = vec![0_u8; 1 << 20];
        let own = buffer.as_ptr().addr()..buffer.as_ptr().addr() + buffer.capacity();
        let mut found = 0;
        for (start, end) in dumped_ranges() {
            let mut at = start;
            while at < end {
                let count = (end - at).min(buffer.len());
                if let Ok(read) = memory.read_at(&mut buffer[..count], at as u64) {
                    let hits = buffer[..read].windows(32).enumerate().filter(|(_, window)| {
                        // As written here it stands in the needle alone, bit by bit inverted.
                        window.iter().zip(needle).all(|(byte, inverted)| *byte == !*inverted)
                    });
                    found += hits.filter(|(offset, _)| !own.contains(&(at + offset))).count();
                }
                at += count;
            }
        }
        found
    }

    #[test]
    fn no_core_dump_holds_the_key() {
        for cipher in [&AES_256_GCM, &CHACHA20_POLY1305] {
            let mut inverted = [0_u8; 32];
            let bytes = Locked::<[u8; 32]>::new(|place| {
                // SAFETY: zeroed memory for 32 bytes, ours alone.
                fill(unsafe { &mut *place.as_ptr() })
            })
            .expect("locked memory");
            for (inverted, byte) in inverted.iter_mut().zip(bytes.iter()) {
                *inverted = !*byte;
            }
            let key = Locked::new(|place| {
                expand(cipher, &bytes, place);
                scrub();
                Ok(())
            })
            .expect("locked memory");
            drop(bytes);
            assert_eq!(times_in_dump(&inverted), 0, "the key's bytes, and AES' first round key");
            // The search finds what is there to be found.
            let seen: Vec<u8> = inverted.iter().map(|byte| !byte).collect();
            assert!(times_in_dump(&inverted) >= 1);
            std::hint::black_box((&seen, &key));
        }
    }

    /// Locked mappings of other tests may lie next to it, and the kernel makes one of neighbours: it is looked at in a process of its own.
    #[test]
    fn it_is_locked_and_not_inherited() {
        const ALONE: &str = "FOLIOSWAP_TEST_ALONE";
        if std::env::var_os(ALONE).is_none() {
            let name = std::thread::current().name().expect("a test has a name").to_owned();
            let mut again = std::process::Command::new(std::env::current_exe().expect("it"));
            let output =
                again.args(["--exact", &name]).env(ALONE, "1").output().expect("the test once more, alone");
            assert!(
                output.status.success() && output.stdout.windows(9).any(|word| word == b"1 passed;"),
                "{output:?}"
            );
            return;
        }
        let key = random_key(best_cipher()).expect("locked memory");
        let address = std::ptr::from_ref::<LessSafeKey>(&key).addr();
        let smaps = fs::read_to_string("/proc/self/smaps").expect("it");
        let start = format!("{address:x}-");
        let of_it = smaps.lines().skip_while(|line| !line.starts_with(&start));
        let flags = of_it.skip(1).find(|line| line.starts_with("VmFlags")).expect("flags");
        for flag in ["lo", "dd", "dc"] {
            assert!(flags.split_whitespace().any(|found| found == flag), "{flag} in {flags}");
        }
        drop(key);
        assert!(!fs::read_to_string("/proc/self/smaps").expect("it").contains(&start));
    }
}
