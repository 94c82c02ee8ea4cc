//! Models of a location under loom: its object is recompressed while a handler reads it, and then
//! frees it. The words are the real ones ([`Place::pack`]); an object is a value that says whether
//! it lives and with which codec it was made.
//!
//! These must hold: a reader finds a living object of the codec that the location names, with its
//! check word; at the end every living object is named by a location, and none was freed twice.

use folioswap_devices::{Checksum, Codec, Handle, Location, Place, StoredLen};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use loom::thread;

/// The way in which the evictor exchanges the object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Exchange {
    /// Under the lock, if the words are those that were seen.
    Right,
    /// Wrong: under the lock, whatever the words are.
    WithoutLooking,
    /// Wrong: a compare-exchange as the compactor's, and the check word, which a move leaves alone,
    /// after it.
    WithoutLock,
}

/// The LOCK bit, as the location word has it.
const LOCK: u64 = Location::NONE.locked().raw();
const FREE: usize = 0;

struct Model {
    location: AtomicU64,
    check: AtomicU32,
    /// `FREE`, or 1 + the codec.
    objects: [AtomicUsize; 2],
    exchange: Exchange,
}

fn place(object: usize, codec: Codec) -> Place {
    Place::Zram {
        handle: Handle::from_raw(object as u64).unwrap(),
        len: StoredLen::new(1000 - object).unwrap(),
        codec,
        checksum: Checksum::from_raw(100 + codec as u32),
    }
}

impl Model {
    fn new(exchange: Exchange) -> Arc<Self> {
        let (location, check) = place(0, Codec::Lz4).pack();
        Arc::new(Model {
            location: AtomicU64::new(location.raw()),
            check: AtomicU32::new(check),
            objects: [AtomicUsize::new(1 + Codec::Lz4 as usize), AtomicUsize::new(FREE)],
            exchange,
        })
    }

    fn try_lock(&self) -> Option<u64> {
        let word = self.location.fetch_or(LOCK, Acquire);
        (word & LOCK == 0).then_some(word)
    }

    /// Really a store; loom would let a failed try from before it come after it in the order of
    /// modifications.
    fn unlock(&self, word: u64) {
        self.location.swap(word, Release);
    }

    /// As `Space::read`, `Space::release`.
    fn lock(&self) -> u64 {
        loop {
            match self.try_lock() {
                Some(word) => return word,
                None => thread::yield_now(),
            }
        }
    }

    fn place(&self, word: u64) -> Place {
        Place::unpack(Location::from_raw(word), self.check.load(Relaxed)).expect("a place")
    }

    fn drop_object(&self, object: usize) {
        assert_ne!(self.objects[object].swap(FREE, AcqRel), FREE, "freed twice");
    }

    fn read(&self) {
        let word = self.lock();
        let Place::Zram { handle, codec, checksum, .. } = self.place(word) else { panic!("it is stored") };
        assert_eq!(self.objects[handle.raw() as usize].load(Acquire), 1 + codec as usize, "not that object");
        assert_eq!(checksum, Checksum::from_raw(100 + codec as u32), "not its checksum");
        self.unlock(word);
    }

    fn free(&self) {
        let word = self.lock();
        let Place::Zram { handle, .. } = self.place(word) else { panic!("it is stored") };
        self.drop_object(handle.raw() as usize);
        self.check.store(0, Relaxed);
        self.unlock(Location::NONE.raw());
    }

    /// As `Space::recompress`.
    fn recompress(&self) {
        let Some(seen) = self.try_lock() else { return };
        let seen_place = self.place(seen);
        self.unlock(seen);
        let Place::Zram { handle, codec: Codec::Lz4, checksum, .. } = seen_place else { return };
        // The new object is not known to any other thread yet.
        self.objects[1].store(1 + Codec::Zstd as usize, Release);
        let (new, check) = place(1, Codec::Zstd).pack();
        let exchanged = match self.exchange {
            Exchange::WithoutLock => {
                let exchanged = self.location.compare_exchange(seen, new.raw(), AcqRel, Relaxed).is_ok();
                if exchanged {
                    self.check.store(check, Relaxed);
                }
                exchanged
            }
            _ => match self.try_lock() {
                Some(word)
                    if self.exchange == Exchange::WithoutLooking
                        || word == seen && self.check.load(Relaxed) == checksum.raw() =>
                {
                    self.check.store(check, Relaxed);
                    self.unlock(new.raw());
                    true
                }
                Some(word) => {
                    self.unlock(word);
                    false
                }
                None => false,
            },
        };
        self.drop_object(if exchanged { handle.raw() as usize } else { 1 });
    }
}

/// A handler reads the page, and reads it again or frees it.
fn run(exchange: Exchange, frees: Frees) {
    loom::model(move || {
        let model = Model::new(exchange);
        let evictor = {
            let model = model.clone();
            thread::spawn(move || model.recompress())
        };
        model.read();
        match frees {
            Frees::Yes => model.free(),
            Frees::No => model.read(),
        }
        evictor.join().unwrap();
        let alive = model.objects.iter().filter(|object| object.load(Acquire) != FREE).count();
        assert_eq!(alive, usize::from(frees == Frees::No), "what no location names lives");
        if frees == Frees::No {
            model.read();
        }
    });
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Frees {
    Yes,
    No,
}

#[test]
fn recompressed_while_it_is_read() {
    run(Exchange::Right, Frees::No);
}

#[test]
fn recompressed_while_it_is_freed() {
    run(Exchange::Right, Frees::Yes);
}

#[test]
#[should_panic(expected = "freed twice")]
fn wrong_exchanged_without_looking() {
    run(Exchange::WithoutLooking, Frees::Yes);
}

#[test]
#[should_panic(expected = "not its checksum")]
fn wrong_exchanged_without_the_lock() {
    run(Exchange::WithoutLock, Frees::No);
}
