//! The keys of the pages that this process has on devices that others can read.
//!
//! Every process encrypts under keys of its own. A child of fork(2) has a copy of its parent's
//! keys, as it has a copy of all else, and so reads the pages that it inherited; after the fork
//! both make a new key before they write again ([`Keys::renew`]), so neither reads what the other
//! writes from then on. The number of its key stands in the location of each page. A key lives as
//! long as a page is under it.
//!
//! Keys are random, stand in memory that is locked as far as the process may lock any, are left out
//! of core dumps, and are overwritten with their last page.

use core::ptr::NonNull;
use folioswap_devices::{KeyNumber, PageCipher};
use folioswap_policy::lock::SpinLock;
use folioswap_policy::units::PAGE;
use rustix::io::Errno;
use rustix::mm::{Advice, madvise, mlock};
use rustix::rand::{GetRandomFlags, getrandom};

/// Keys of one process at a time, number 0 (none) included.
const KEYS_MAX: usize = 1 << KeyNumber::BITS;

#[repr(C)]
struct Key {
    bytes: [u8; PageCipher::KEY_BYTES],
    /// Pages under this key, and those that are being written.
    uses: u32,
}

/// What becomes of the present key before the next page is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// There is none yet, or another process knows it.
    New,
    /// It is used on.
    Same,
}

struct Table {
    /// The key with number n stands at n; number 0 is never used.
    keys: NonNull<Key>,
    /// The key of pages that are written now; 0: there was none yet.
    current: usize,
    next: Next,
    /// One past the highest number that was ever used.
    high: usize,
}

// SAFETY: the pointer refers to memory that lives for ever and is used under the lock.
unsafe impl Send for Table {}

/// The keys of one process. A forked child goes on with its copy.
pub struct Keys(SpinLock<Table>);

impl Keys {
    /// Bytes of zeroed memory that it needs; only used memory is touched.
    pub const BYTES: usize = (KEYS_MAX * size_of::<Key>()).next_multiple_of(PAGE);

    /// No keys yet.
    ///
    /// # Safety
    /// `memory` must be [`Keys::BYTES`] of zeroed memory, page aligned, for its use alone, for
    /// ever.
    pub unsafe fn new(memory: NonNull<u8>) -> Self {
        // SAFETY: the memory is ours; the advice changes no bytes. Without it keys would be in a
        // core dump, beside the memory that they encrypt.
        let _ = unsafe { madvise(memory.as_ptr().cast(), Self::BYTES, Advice::LinuxDontDump) };
        Keys(SpinLock::new(Table { keys: memory.cast(), current: 0, next: Next::New, high: 1 }))
    }

    /// Returns the key of the pages that are to be written now, which it holds for so many of them
    /// until [`Keys::put`].
    ///
    /// Where all numbers are taken, the last key is used on after a fork too.
    ///
    /// # Errors
    /// getrandom(2)'s; there is no key then, and nothing may be written.
    pub fn take(&self, pages: u32) -> Result<(KeyNumber, PageCipher), Errno> {
        let wants_new = { self.0.lock().next == Next::New };
        // The lock is for some instructions, so the system is asked before.
        let random = if wants_new { Some(random()?) } else { None };
        let mut table = self.0.lock();
        if let Some(random) = random
            && table.next == Next::New
            && let Some(number) = table.free_number()
        {
            table.make(number, random);
        }
        let number = table.current;
        let key = table.key(number).ok_or(Errno::NOENT)?;
        key.uses += pages;
        let cipher = PageCipher::new(&key.bytes);
        KeyNumber::new(number as u16).map(|number| (number, cipher)).ok_or(Errno::NOENT)
    }

    /// Lets go of a key for so many pages. With its last page a key is overwritten, unless it is
    /// the one of pages that are written now.
    pub fn put(&self, number: KeyNumber, pages: u32) {
        let mut table = self.0.lock();
        let is_current = table.current == number.raw() as usize;
        if let Some(key) = table.key(number.raw().into()) {
            debug_assert!(key.uses >= pages, "each page has taken its key");
            key.uses = key.uses.saturating_sub(pages);
            if key.uses == 0 && !is_current {
                key.wipe();
            }
        }
    }

    /// Returns the cipher of a page's key; `None` for a page that is not encrypted.
    pub fn cipher(&self, number: KeyNumber) -> Option<PageCipher> {
        self.0.lock().key(number.raw().into()).map(|key| PageCipher::new(&key.bytes))
    }

    /// Says that another process has, or will have, a copy of the present key: pages that are
    /// written from now on are under a new one. For a process that forks, before it does; the child
    /// inherits that it needs one too.
    pub fn renew(&self) {
        self.0.lock().next = Next::New;
    }

    /// Returns the number of pages that hold a key, for tests. Cost: a look at each key.
    pub fn pages(&self) -> u64 {
        let mut table = self.0.lock();
        let uses = |number| table.key(number).map_or(0, |key| u64::from(key.uses));
        (1..KEYS_MAX).map(uses).sum()
    }

    /// Locks the keys in memory once more, in a forked child, which inherits no locks. Best effort:
    /// a process may be allowed to lock none.
    pub fn lock_again(&self) {
        let (start, bytes) = {
            let table = self.0.lock();
            (table.keys, if table.high > 1 { table.high * size_of::<Key>() } else { 0 })
        };
        lock(start.cast(), bytes);
    }
}

impl Table {
    /// The key with this number, unless it is 0.
    fn key(&mut self, number: usize) -> Option<&mut Key> {
        if number == 0 || number >= self.high {
            return None;
        }
        // SAFETY: number is below KEYS_MAX, for which there is memory; exclusive under the lock.
        Some(unsafe { self.keys.add(number).as_mut() })
    }

    /// A number under which no page is: the present one, if it may be made anew.
    fn free_number(&mut self) -> Option<usize> {
        let current = self.current;
        let mut all = core::iter::once(current).chain(1..self.high);
        let unused = all.find(|&number| self.key(number).is_some_and(|key| key.uses == 0));
        unused.or_else(|| (self.high < KEYS_MAX).then_some(self.high))
    }

    /// Makes a key with this number, which is free, for the pages that are written from now on.
    fn make(&mut self, number: usize, random: [u8; PageCipher::KEY_BYTES]) {
        let first = self.high <= number;
        self.high = self.high.max(number + 1);
        if let Some(key) = self.key(number) {
            key.bytes = random;
            let start = NonNull::from(key).cast();
            if first {
                lock(start, size_of::<Key>());
            }
        }
        let before = core::mem::replace(&mut self.current, number);
        self.next = Next::Same;
        if before != number
            && let Some(key) = self.key(before)
            && key.uses == 0
        {
            key.wipe();
        }
    }
}

impl Key {
    /// Overwrites the key by writes that are not optimised away.
    fn wipe(&mut self) {
        for byte in &mut self.bytes {
            // SAFETY: the byte is our own.
            unsafe { core::ptr::from_mut(byte).write_volatile(0) };
        }
    }
}

/// Locks the pages of these bytes in memory. Best effort.
fn lock(start: NonNull<u8>, bytes: usize) {
    let first = start.as_ptr().map_addr(|address| address & !(PAGE - 1));
    let end = start.as_ptr().addr() + bytes;
    if bytes > 0 {
        // SAFETY: the pages are the table's own, and locking changes no bytes.
        let _ = unsafe { mlock(first.cast(), end - first.addr()) };
    }
}

/// Random bytes that nobody can guess.
fn random() -> Result<[u8; PageCipher::KEY_BYTES], Errno> {
    let mut bytes = [0; PageCipher::KEY_BYTES];
    loop {
        match getrandom(&mut bytes[..], GetRandomFlags::empty()) {
            Ok(got) if got == bytes.len() => return Ok(bytes),
            // A signal may interrupt the wait for the system's first randomness.
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

#[cfg(test)]
mod tests;
