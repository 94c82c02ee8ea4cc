//! Stores that keep pages by [`Place`]: store a run of pages, load, free, report. The file device
//! stands behind the simplest allocator of its slots.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use folioswap_devices::create::create_swap_file;
use folioswap_devices::zstd::{Decoder, Encoder};
use folioswap_devices::{
    Checksum, Codec, FileDevice, FileError, FileSlot, IncompressiblePolicy, KeyNumber, LoadError, Owner,
    PAGE_SIZE, Page, Place, Recompressed, Scratch, StoreError, StoreOptions, Stored, Zram, page,
};

use super::memory::TestMemory;

/// The reason why a run was not stored completely; its stored pages have been freed again.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    Store(StoreError),
    File(FileError),
}

/// The reason why a page did not come back.
#[derive(Debug, PartialEq, Eq)]
pub enum Fault {
    Load(LoadError),
    File(FileError),
    Checksum { slot: FileSlot, expected: Checksum, found: Checksum },
}

/// A device's own figures.
#[derive(Debug, PartialEq, Eq)]
pub struct Report {
    pub pages: u64,
    pub used_bytes: u64,
}

pub trait PageStore: Sync {
    fn store_run(&self, pages: &[Page], first_owner: u64) -> Result<Vec<Place>, Refused>;
    fn load(&self, place: Place, out: &mut Page) -> Result<(), Fault>;
    fn free(&self, place: Place);
    fn report(&self) -> Report;
    /// Flips one bit of the stored bytes; false if nothing is stored for this place.
    fn damage(&self, place: Place) -> bool;
    /// Gives back everything that is empty.
    fn settle(&self);
}

/// The compressed store as a device.
pub struct ZramDevice {
    pub zram: Box<Zram<TestMemory>>,
    scratch: Mutex<Vec<Box<Scratch>>>,
    coders: Mutex<Vec<Box<Coders>>>,
}

/// The coders of one thread.
#[derive(Default)]
pub struct Coders {
    pub encoder: Encoder,
    pub decoder: Decoder,
}

impl ZramDevice {
    pub fn new(options: StoreOptions) -> Self {
        let options = StoreOptions {
            incompressible: IncompressiblePolicy::Keep,
            relax: std::thread::yield_now,
            ..options
        };
        Self {
            zram: Box::new(Zram::new(TestMemory::new(), options)),
            scratch: Mutex::default(),
            coders: Mutex::default(),
        }
    }

    pub fn store(&self, scratch: &mut Scratch, page: &Page, owner: u64) -> Result<Place, StoreError> {
        Ok(match self.zram.store(scratch, page, Owner::new(owner).unwrap())? {
            Stored::Zero => Place::Zero,
            Stored::SameFilled { pattern } => Place::SameFilled { pattern },
            Stored::Object { handle, len, codec, checksum } => Place::Zram { handle, len, codec, checksum },
            Stored::Incompressible => panic!("refused under Keep"),
        })
    }
}

impl ZramDevice {
    /// Recompresses the page of this place with zstd, as its owner does; returns its place
    /// afterwards.
    pub fn recompress(&self, place: Place, page: &Page, owner: u64) -> Place {
        let Place::Zram { handle, len, codec: Codec::Lz4, checksum } = place else { return place };
        let mut coders = self.coders.lock().unwrap().pop().unwrap_or_default();
        let recompressed = self.zram.recompress(&mut coders.encoder, page, len, Owner::new(owner).unwrap());
        self.coders.lock().unwrap().push(coders);
        match recompressed.unwrap() {
            Recompressed::NotWorth => Place::Zram { handle, len, codec: Codec::Lz4Settled, checksum },
            Recompressed::Object { handle, len, checksum } => {
                self.free(place);
                Place::Zram { handle, len, codec: Codec::Zstd, checksum }
            }
        }
    }
}

impl PageStore for ZramDevice {
    fn store_run(&self, pages: &[Page], first_owner: u64) -> Result<Vec<Place>, Refused> {
        let mut scratch = self.scratch.lock().unwrap().pop().unwrap_or_default();
        let mut places = Vec::new();
        for (page, owner) in pages.iter().zip(first_owner..) {
            match self.store(&mut scratch, page, owner) {
                Ok(place) => places.push(place),
                Err(error) => {
                    places.into_iter().for_each(|place| self.free(place));
                    return Err(Refused::Store(error));
                }
            }
        }
        self.scratch.lock().unwrap().push(scratch);
        Ok(places)
    }

    fn load(&self, place: Place, out: &mut Page) -> Result<(), Fault> {
        match place {
            Place::Zero => page::fill(out, 0),
            Place::SameFilled { pattern } => page::fill(out, pattern),
            Place::Zram { handle, len, codec, checksum } => {
                let mut coders = self.coders.lock().unwrap().pop().unwrap_or_default();
                // SAFETY: the tests free no place that they load at the same time.
                let loaded =
                    unsafe { self.zram.load(handle, len, codec, checksum, &mut coders.decoder, out) };
                self.coders.lock().unwrap().push(coders);
                loaded.map_err(Fault::Load)?
            }
            place => panic!("not ours: {place:?}"),
        }
        Ok(())
    }

    fn free(&self, place: Place) {
        match place {
            // SAFETY: the tests free what they stored, once.
            Place::Zram { handle, len, .. } => unsafe { self.zram.free(handle, len) }.unwrap(),
            _ => self.zram.forget_same_filled(),
        }
    }

    fn report(&self) -> Report {
        let stat = self.zram.mm_stat();
        Report { pages: stat.orig_data_size / 4096, used_bytes: self.zram.memory().resident_bytes() as u64 }
    }

    fn damage(&self, place: Place) -> bool {
        let Place::Zram { handle, len, .. } = place else { return false };
        // SAFETY: the object is live and nothing else refers to it.
        unsafe { *self.zram.memory().object(handle).add(8 + len.bytes() / 2) ^= 0x10 };
        true
    }

    fn settle(&self) {
        self.zram.trim();
        self.zram.validate().unwrap();
    }
}

/// The file device with the simplest allocator of slots: a slot is never reused, and is punched
/// when freed.
pub struct FileUnderTest {
    pub fd: OwnedFd,
    next: AtomicU64,
    pages: AtomicU64,
}

/// A run of pages, aligned as O_DIRECT demands.
pub struct AlignedRun {
    storage: Vec<AlignedPage>,
}

#[repr(align(4096))]
#[derive(Clone)]
struct AlignedPage(Page);

impl AlignedRun {
    pub fn new(pages: usize) -> Self {
        Self { storage: vec![AlignedPage([0; PAGE_SIZE]); pages] }
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        let bytes = self.storage.len() * PAGE_SIZE;
        // SAFETY: aligned pages follow each other without gaps.
        unsafe { std::slice::from_raw_parts_mut(self.storage.as_mut_ptr().cast(), bytes) }
    }
}

impl FileUnderTest {
    pub fn new() -> Self {
        let fd = create_swap_file(Path::new("/var/tmp")).unwrap();
        Self { fd, next: AtomicU64::new(0), pages: AtomicU64::new(0) }
    }

    pub fn device(&self) -> FileDevice<'_> {
        FileDevice::new(self.fd.as_fd())
    }
}

impl PageStore for FileUnderTest {
    fn store_run(&self, pages: &[Page], _first_owner: u64) -> Result<Vec<Place>, Refused> {
        let mut run = AlignedRun::new(pages.len());
        run.bytes().copy_from_slice(pages.as_flattened());
        let first = self.next.fetch_add(pages.len() as u64, Ordering::Relaxed);
        let slot = |index| FileSlot::new(first + index as u64).unwrap();
        self.device().write(slot(0), run.bytes()).map_err(Refused::File)?;
        self.pages.fetch_add(pages.len() as u64, Ordering::Relaxed);
        let key = KeyNumber::NONE;
        let place = |(index, page): (usize, &Page)| Place::File {
            slot: slot(index),
            key,
            checksum: Checksum::of(page),
        };
        Ok(pages.iter().enumerate().map(place).collect())
    }

    fn load(&self, place: Place, out: &mut Page) -> Result<(), Fault> {
        let Place::File { slot, checksum: expected, .. } = place else { panic!("not ours: {place:?}") };
        let mut run = AlignedRun::new(1);
        self.device().read(slot, run.bytes()).map_err(Fault::File)?;
        let found = Checksum::of(run.bytes());
        if found != expected {
            return Err(Fault::Checksum { slot, expected, found });
        }
        out.copy_from_slice(run.bytes());
        Ok(())
    }

    fn free(&self, place: Place) {
        let Place::File { slot, .. } = place else { panic!("not ours: {place:?}") };
        self.device().discard(slot, 1).unwrap();
        self.pages.fetch_sub(1, Ordering::Relaxed);
    }

    fn report(&self) -> Report {
        let stat = rustix::fs::fstat(&self.fd).unwrap();
        Report { pages: self.pages.load(Ordering::Relaxed), used_bytes: stat.st_blocks as u64 * 512 }
    }

    fn damage(&self, place: Place) -> bool {
        let Place::File { slot, .. } = place else { return false };
        let mut run = AlignedRun::new(1);
        self.device().read(slot, run.bytes()).unwrap();
        run.bytes()[1234] ^= 0x10;
        self.device().write(slot, run.bytes()).unwrap();
        true
    }

    fn settle(&self) {}
}
