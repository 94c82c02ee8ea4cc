//! Reading the page that an entry's location names, with the proof that it is the page written.

use super::{Movers, ReadError, Space, Written};
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;
use folioswap_devices::read_ring::ReadRing;
use folioswap_devices::zstd::Decoder;
use folioswap_devices::{Checksum, FileSlot, KeyNumber, Location, Page, PageCipher, PageMemory, Place};
use folioswap_policy::memory::Memory;
use folioswap_slots::SwapEntry;
use rustix::io::Errno;
use rustix::thread::{Timespec, nanosleep};

/// The pause between two attempts to read a page.
const RETRY_AFTER_NS: i64 = 1_000_000;
/// Reads that failed without a good one between them, after which no more time is spent on another
/// attempt.
const GONE_AFTER_READS: u32 = 16;

/// Whether there was a pause before a further read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pause {
    Taken,
    /// The device seems to be gone.
    NotTaken,
}

/// The cipher of the page that was decrypted last: pages that lie together have mostly been written
/// together, under one key.
#[derive(Default)]
pub(crate) struct LastCipher {
    key: KeyNumber,
    cipher: Option<PageCipher>,
}

/// The slot of an entry's page on a shared device, its key, and the checksum of its bytes.
struct OnDevice {
    slot: FileSlot,
    key: KeyNumber,
    checksum: Checksum,
}

impl<M: Memory + PageMemory> Space<'_, M> {
    /// Reads an entry's page. `page` is page aligned (the file device reads into it directly);
    /// `decoder` is the calling thread's.
    ///
    /// # Errors
    /// [`ReadError`]: the page is lost, by name.
    pub fn read(
        &self,
        entry: SwapEntry,
        decoder: &mut Decoder,
        page: &mut Page,
        movers: Movers,
    ) -> Result<Written, ReadError> {
        let beside = self.beside(entry).ok_or(ReadError::Missing)?;
        let location = match movers {
            Movers::Frozen => beside.location.get(),
            Movers::Running => loop {
                match beside.location.try_lock() {
                    Some(location) => break location,
                    None => core::hint::spin_loop(),
                }
            },
        };
        let result = self.read_place(location, beside.check.load(Relaxed), decoder, page);
        if movers == Movers::Running {
            beside.location.unlock_with(location);
        }
        result
    }

    pub(crate) fn read_place(
        &self,
        location: Location,
        check: u32,
        decoder: &mut Decoder,
        page: &mut Page,
    ) -> Result<Written, ReadError> {
        match Place::unpack(location, check).ok_or(ReadError::Corrupt)? {
            Place::None => Err(ReadError::Missing),
            Place::Zero => {
                page.fill(0);
                Ok(Written::SameFilled)
            }
            Place::SameFilled { pattern } => {
                folioswap_devices::page::fill(page, pattern);
                Ok(Written::SameFilled)
            }
            Place::Zram { handle, len, codec, checksum } => {
                // SAFETY: the location is locked by our caller, or all other threads are stopped.
                unsafe { self.zram.load(handle, len, codec, checksum, decoder, page) }
                    .map_err(|_| ReadError::Corrupt)?;
                Ok(Written::Zram)
            }
            Place::File { slot, key, checksum } => {
                self.read_slot(slot, key, checksum, page)?;
                Ok(Written::Shared)
            }
        }
    }

    /// Reads one page of a shared device. A read that fails is tried once more after a moment: a
    /// path that was interrupted may be back, and bytes that were damaged on their way are right on
    /// the medium.
    pub(crate) fn read_slot(
        &self,
        slot: FileSlot,
        key: KeyNumber,
        checksum: Checksum,
        page: &mut Page,
    ) -> Result<(), ReadError> {
        let first = self.read_slot_once(slot, key, checksum, page);
        if first.is_ok() || self.wait_before_retry() == Pause::NotTaken {
            return first;
        }
        self.read_slot_once(slot, key, checksum, page)?;
        self.read_retries.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Pauses after a failed read, unless reads fail again and again: then the device is gone, and
    /// no thread is to wait for it.
    fn wait_before_retry(&self) -> Pause {
        if self.reads_failed.fetch_add(1, Relaxed) >= GONE_AFTER_READS {
            return Pause::NotTaken;
        }
        // A signal may cut the pause short: then the read is tried a little earlier.
        let _ = nanosleep(&Timespec { tv_sec: 0, tv_nsec: RETRY_AFTER_NS });
        Pause::Taken
    }

    fn read_slot_once(
        &self,
        slot: FileSlot,
        key: KeyNumber,
        checksum: Checksum,
        page: &mut Page,
    ) -> Result<(), ReadError> {
        let (device, within) = self.shared.open(slot).ok_or(ReadError::Corrupt)?;
        device.read(within, page).map_err(ReadError::File)?;
        self.decrypt(&mut LastCipher::default(), slot, key, page);
        if Checksum::of(page) != checksum {
            return Err(ReadError::Corrupt);
        }
        if self.reads_failed.load(Relaxed) != 0 {
            self.reads_failed.store(0, Relaxed);
        }
        Ok(())
    }

    /// Decrypts a page that was read from this slot, if it has a key.
    pub(crate) fn decrypt(&self, last: &mut LastCipher, slot: FileSlot, key: KeyNumber, page: &mut Page) {
        if key.is_none() {
            return;
        }
        if last.key != key {
            *last = LastCipher { key, cipher: self.keys.cipher(key) };
        }
        if let Some(cipher) = &last.cipher {
            cipher.decrypt(slot, page);
        }
    }

    /// Where an entry's bytes are on a shared device; `None` when they are not on one. The caller
    /// holds the entry's page word.
    fn on_device(&self, entry: Option<SwapEntry>) -> Option<OnDevice> {
        let beside = self.beside(entry?)?;
        match Place::unpack(beside.location.get(), beside.check.load(Relaxed))? {
            Place::File { slot, key, checksum } => Some(OnDevice { slot, key, checksum }),
            _ => None,
        }
    }

    /// Returns how many reads of shared devices succeeded when tried again, since the last call.
    pub fn take_read_retries(&self) -> u64 {
        self.read_retries.swap(0, Relaxed)
    }

    /// Reads consecutive slots of a shared device in one go, for entries whose [`Space::file_slot`]
    /// are these slots, and checks each page. Calls `bad` with the index of every page that fails
    /// for good, and with the reason.
    ///
    /// Where the device fails, or a page is not the one written, the pages are read one by one, so
    /// that one bad slot costs one page. Only the holder of the entries' page words may call; bytes
    /// on shared devices do not move.
    pub fn read_run(
        &self,
        entries: &[Option<SwapEntry>],
        first: FileSlot,
        pages: &mut [Page],
        mut bad: impl FnMut(usize, ReadError),
    ) {
        let read =
            self.shared.open(first).map(|(device, within)| device.read(within, pages.as_flattened_mut()));
        let (is_read, mut waited) = (matches!(read, Some(Ok(()))), false);
        let mut last = LastCipher::default();
        for (index, (&entry, page)) in entries.iter().zip(pages).enumerate() {
            let Some(OnDevice { slot, key, checksum }) = self.on_device(entry) else {
                bad(index, ReadError::Missing);
                continue;
            };
            debug_assert_eq!(slot.raw(), first.raw() + index as u64, "the caller has asked for it");
            if is_read {
                self.decrypt(&mut last, slot, key, page);
                if Checksum::of(page) == checksum {
                    continue;
                }
            }
            // All pages are read again after one pause.
            if !waited {
                self.wait_before_retry();
                waited = true;
            }
            match self.read_slot_once(slot, key, checksum, page) {
                Ok(()) => {
                    self.read_retries.fetch_add(1, Relaxed);
                }
                Err(error) => bad(index, error),
            }
        }
    }

    /// Begins to read slots of a shared device that follow each other, as [`ReadRing::begin`] does.
    /// The caller must check the pages that have come with [`Space::check_run`].
    ///
    /// # Safety
    /// [`ReadRing::begin`]'s.
    ///
    /// # Errors
    /// BADF: no shared device has this slot. Otherwise [`ReadRing::begin`]'s.
    pub unsafe fn begin_read(
        &self,
        ring: &mut ReadRing,
        first: FileSlot,
        pages: NonNull<u8>,
        bytes: usize,
        tag: u64,
    ) -> Result<(), Errno> {
        let (device, within) = self.shared.open(first).ok_or(Errno::BADF)?;
        // SAFETY: the caller's.
        unsafe { device.begin_read(ring, within, pages, bytes, tag) }
    }

    /// Decrypts and checks pages that were read from shared devices for these entries; calls `bad`
    /// with the index of every page that is not the one written. Only the holder of the entries'
    /// page words may call, once for each page that was read.
    pub fn check_run(&self, entries: &[Option<SwapEntry>], pages: &mut [Page], mut bad: impl FnMut(usize)) {
        let mut last = LastCipher::default();
        for (index, (&entry, page)) in entries.iter().zip(pages).enumerate() {
            let is_good = self.on_device(entry).is_some_and(|OnDevice { slot, key, checksum }| {
                self.decrypt(&mut last, slot, key, page);
                Checksum::of(page) == checksum
            });
            if !is_good {
                bad(index);
            }
        }
    }
}
