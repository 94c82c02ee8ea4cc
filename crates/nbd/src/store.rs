//! Pages of swap on an export: slots of 4096 bytes from its second megabyte on, encrypted or not.
//!
//! An encrypted page keeps 24 bytes in memory ([`Seal`]), in tables of 512 pages. A table is
//! allocated with the first page of a cluster and freed when the cluster is given up.

mod export;

pub use export::{Encryption, Prepared, Suitable, plain_client};

use crate::client::{Client, Event, Operation, Statistics};
use crate::error::RequestError;
use crate::identity::{BEAT, ExportMark};
use crate::key::KeyError;
use crate::queue::{Span, WriteQueue};
use crate::seal::{Seal, Sealer};
use crate::wire::{Command, ExportFlags};
use folioswap_group::units::{CLUSTER_PAGES, PAGE_SIZE};
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Bytes before the first slot: the mark's block, and padding that aligns the slots.
pub const FIRST: u64 = 1 << 20;
/// Most pages of one request.
pub const PAGES_MAX: usize = 64;
/// Most bytes of writes under way. Further writes wait in the queue, and no thread waits with them.
/// Reads therefore always find space in the client
/// ([`Settings::in_flight_max`](crate::client::Settings::in_flight_max)) when they are few, as they
/// are: a member makes one on each link.
const WRITING_MAX: u64 = 8 << 20;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Beating {
    #[default]
    Yes,
    No,
}

/// Whether the mark's count is still to grow.
#[derive(Default)]
struct Pulse {
    beating: Mutex<Beating>,
    stopped: Condvar,
}

impl Pulse {
    /// Waits for the next beat, or for the end.
    fn wait(&self) -> Beating {
        let beating = lock(&self.beating);
        let waited = self.stopped.wait_timeout_while(beating, BEAT, |beating| *beating == Beating::Yes);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn stop(&self) {
        *lock(&self.beating) = Beating::No;
        self.stopped.notify_all();
    }
}

/// Called with the outcome of reading or writing; as [`crate::client::Done`].
pub type Done = Box<dyn FnOnce(Result<Vec<u8>, RequestError>) + Send>;

/// Seals of a cluster's pages.
type Seals = Box<[Seal; CLUSTER_PAGES as usize]>;

/// A write that is under way or waits.
struct Write {
    first: u64,
    pages: Vec<u8>,
    done: Done,
}

impl Write {
    fn span(&self) -> Span {
        Span {
            first: self.first,
            count: (self.pages.len() / PAGE_SIZE) as u64,
            bytes: self.pages.len() as u64,
        }
    }
}

/// Pages on an export.
pub struct Store {
    client: Client,
    mark: Arc<ExportMark>,
    sealer: Option<Sealer>,
    seals: Mutex<HashMap<u64, Seals>>,
    /// Ranges of slots that are being written or given up.
    writes: Arc<WriteQueue<Write>>,
    pulse: Arc<Pulse>,
    beats: Mutex<Option<JoinHandle<()>>>,
    /// Clusters of which the server is to be told; their ranges are under way in `writes`.
    trims: mpsc::Sender<u64>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    /// Pages on an export that is marked and connected. Starts the threads, among them the one that
    /// makes the mark's count grow.
    fn on_export(
        client: Client,
        mark: Arc<ExportMark>,
        sealer: Option<Sealer>,
    ) -> Result<Arc<Self>, KeyError> {
        let store = Self::new(client, mark, sealer)?;
        let (beating, pulse) = (Arc::downgrade(&store), Arc::clone(&store.pulse));
        let beats = thread::Builder::new().name("nbd-mark".into()).stack_size(64 << 10).spawn(move || {
            // The thread holds no reference to the store while it waits.
            while pulse.wait() == Beating::Yes
                && let Some(store) = beating.upgrade()
            {
                // A beat that fails is followed by the next. If the export is another run's, the
                // client knows it from then on.
                let _ = store.mark.beat(&store.client);
            }
        });
        *lock(&store.beats) = beats.ok();
        Ok(store)
    }

    fn new(client: Client, mark: Arc<ExportMark>, sealer: Option<Sealer>) -> Result<Arc<Self>, KeyError> {
        let (trims, trimmed) = mpsc::channel();
        let store = Arc::new(Store {
            client,
            mark,
            sealer,
            seals: Mutex::default(),
            writes: Arc::new(WriteQueue::new(WRITING_MAX)),
            pulse: Arc::default(),
            beats: Mutex::new(None),
            trims,
        });
        let trimming = Arc::downgrade(&store);
        let trim = move || {
            for cluster in trimmed {
                let Some(store) = trimming.upgrade() else { return };
                store.trim(cluster);
            }
        };
        let _ = thread::Builder::new().name("nbd-trim".into()).stack_size(64 << 10).spawn(trim);
        // Writes that waited are sent by a thread of their own: a thread that reads replies must
        // not wait for a server to take more.
        let (sending, writes) = (Arc::downgrade(&store), Arc::clone(&store.writes));
        let send = move || {
            while let Some(write) = writes.next()
                && let Some(store) = sending.upgrade()
            {
                store.send(write);
            }
        };
        let thread = thread::Builder::new().name("nbd-writes".into()).stack_size(128 << 10);
        thread.spawn(send).map_err(|_| KeyError::Thread)?;
        Ok(store)
    }

    /// Bytes of the seal tables in memory.
    pub fn table_bytes(&self) -> usize {
        lock(&self.seals).len() * size_of::<[Seal; CLUSTER_PAGES as usize]>()
    }

    /// The events since the last call.
    pub fn take_events(&self) -> Vec<Event> {
        self.client.take_events()
    }

    /// The counters.
    pub fn statistics(&self) -> Statistics {
        self.client.statistics()
    }

    /// Writes whole pages, [`PAGES_MAX`] at most, to slots from `first` on. While an overlapping
    /// write is under way, or too many bytes are, the write waits and the caller does not. After a
    /// failure nothing can be read there.
    pub fn write(self: &Arc<Self>, first: u64, pages: Vec<u8>, done: Done) {
        if self.offset(first, (pages.len() / PAGE_SIZE) as u64, pages.len()).is_none() {
            return done(Err(RequestError::Range { offset: first, length: pages.len() as u64 }));
        }
        let write = Write { first, pages, done };
        if let Some(write) = self.writes.enter(write.span(), write) {
            self.send(write);
        }
    }

    /// Seals and sends the pages of a write that is under way.
    fn send(self: &Arc<Self>, write: Write) {
        let span = write.span();
        let Write { first, mut pages, done } = write;
        let Some(offset) = self.offset(first, span.count, pages.len()) else { return };
        let count = span.count;
        let mut seals = [Seal::default(); PAGES_MAX];
        if let Some(sealer) = &self.sealer {
            // The former contents of the slots cannot be read from now on.
            self.set_seals(first, &seals[..count as usize]);
            for ((index, page), seal) in (0..).zip(pages.chunks_exact_mut(PAGE_SIZE)).zip(&mut seals) {
                *seal = sealer.seal(first + index, page);
            }
        }
        let (store, length) = (Arc::clone(self), pages.len() as u32);
        let operation = Operation { command: Command::Write, flags: 0, offset, length, data: pages };
        self.client.submit(
            operation,
            Box::new(move |result| {
                if result.is_ok() && store.sealer.is_some() {
                    store.set_seals(first, &seals[..count as usize]);
                }
                store.writes.leave(span);
                done(result);
            }),
        );
    }

    /// Reads pages, [`PAGES_MAX`] at most, from slots from `first` on.
    pub fn read(self: &Arc<Self>, first: u64, count: u64, done: Done) {
        let bytes = (count as usize).saturating_mul(PAGE_SIZE);
        let Some(offset) = self.offset(first, count, bytes) else {
            return done(Err(RequestError::Range { offset: first, length: bytes as u64 }));
        };
        let store = Arc::clone(self);
        let length = bytes as u32;
        let operation = Operation { command: Command::Read, flags: 0, offset, length, data: Vec::new() };
        self.client.submit(
            operation,
            Box::new(move |result| done(result.and_then(|pages| store.open(first, count, pages)))),
        );
    }

    fn open(&self, first: u64, count: u64, mut pages: Vec<u8>) -> Result<Vec<u8>, RequestError> {
        let Some(sealer) = &self.sealer else { return Ok(pages) };
        let seals = self.seals(first, count);
        for ((slot, page), seal) in (first..).zip(pages.chunks_exact_mut(PAGE_SIZE)).zip(&seals) {
            if !seal.is_written() {
                return Err(RequestError::Missing);
            }
            sealer.open(slot, seal, page).map_err(|_| RequestError::Forged)?;
        }
        Ok(pages)
    }

    /// Gives a cluster up: it can no longer be read, and the server may forget it. Does not wait. A
    /// later write to the cluster waits until the server has forgotten it.
    pub fn trim_cluster(&self, cluster: u64) {
        self.forget_cluster(cluster);
        if !self.client.agreed().flags.has(ExportFlags::TRIM) {
            return;
        }
        // A member that was killed may still be writing there. That data is overwritten or stays;
        // only space is lost.
        let span = cluster_span(cluster);
        if self.writes.try_take(span) && self.trims.send(cluster).is_err() {
            self.writes.leave(span);
        }
    }

    fn trim(self: &Arc<Self>, cluster: u64) {
        let (span, store) = (cluster_span(cluster), Arc::clone(self));
        let (offset, length) =
            (FIRST + span.first * PAGE_SIZE as u64, (CLUSTER_PAGES as usize * PAGE_SIZE) as u32);
        let operation = Operation { command: Command::Trim, flags: 0, offset, length, data: Vec::new() };
        // A server that does not trim keeps the space until the end.
        self.client.submit(operation, Box::new(move |_| store.writes.leave(span)));
    }

    /// Forgets the contents of a cluster without telling the server.
    pub fn forget_cluster(&self, cluster: u64) {
        lock(&self.seals).remove(&cluster);
    }

    /// The offset of slots in bytes; `None` for a range that no request may have.
    fn offset(&self, first: u64, count: u64, bytes: usize) -> Option<u64> {
        let fits = count > 0 && count <= PAGES_MAX as u64 && bytes == count as usize * PAGE_SIZE;
        first.checked_mul(PAGE_SIZE as u64)?.checked_add(FIRST).filter(|_| fits)
    }

    fn set_seals(&self, first: u64, seals: &[Seal]) {
        let mut tables = lock(&self.seals);
        for (slot, seal) in (first..).zip(seals) {
            let table = tables
                .entry(slot / CLUSTER_PAGES)
                .or_insert_with(|| Box::new([Seal::default(); CLUSTER_PAGES as usize]));
            table[(slot % CLUSTER_PAGES) as usize] = *seal;
        }
    }

    fn seals(&self, first: u64, count: u64) -> Vec<Seal> {
        let tables = lock(&self.seals);
        let of = |slot: u64| {
            let table = tables.get(&(slot / CLUSTER_PAGES));
            table.map_or_else(Seal::default, |table| table[(slot % CLUSTER_PAGES) as usize])
        };
        (first..first + count).map(of).collect()
    }

    /// Erases the mark and disconnects from the server, as far as it answers within `patience`.
    pub fn finish(self: &Arc<Self>, patience: Duration) {
        self.pulse.stop();
        let beats = lock(&self.beats).take();
        let store = Arc::clone(self);
        let (sender, receiver) = std::sync::mpsc::channel();
        let ends = thread::spawn(move || {
            // The last count must not come after the erased mark.
            let _ = beats.map(JoinHandle::join);
            let _ = store.mark.erase(&store.client);
            let _ = sender.send(());
        });
        if receiver.recv_timeout(patience).is_ok() {
            let _ = ends.join();
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.pulse.stop();
        self.writes.end();
    }
}

/// The span of a whole cluster; it holds no bytes.
const fn cluster_span(cluster: u64) -> Span {
    Span { first: cluster * CLUSTER_PAGES, count: CLUSTER_PAGES, bytes: 0 }
}
