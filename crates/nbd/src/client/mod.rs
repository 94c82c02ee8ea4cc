//! Requests to an export over one or several connections (*lanes*).
//!
//! Many requests may be under way; each has a deadline. A lane that fails reconnects by itself, at
//! growing intervals. Before a request is sent again the export must prove that it is still the
//! same one ([`Known`]). Every request can be sent twice without harm: reads, and writes that no
//! other write overlaps (the writer guarantees that, see [`crate::store`]).
//!
//! Threads: each lane has one that reads its replies, and one *keeper* watches deadlines. A request
//! is sent by the thread that makes it. Requests that waited for a lane's connection are sent by a
//! thread that lives only for that.

mod keeper;
mod lanes;
mod requests;

use crate::error::{ConnectError, Replaced, RequestError};
use crate::reply::Expected;
use crate::session::{Agreed, Requests, Session, Socket};
use crate::tls::Tls;
use crate::uri::Uri;
use crate::wire::{Command, ExportFlags};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Longest time of one step of connecting.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// The time between attempts to reconnect: the first, and the longest.
const BACKOFF_FIRST: Duration = Duration::from_millis(20);
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// The time between two rounds of the keeper while requests are under way, and while none is.
const TICK_BUSY: Duration = Duration::from_millis(10);
const TICK_IDLE: Duration = Duration::from_millis(100);
/// The time between two rounds of the keeper while a request waits to be sent again.
const TICK_RETRY: Duration = Duration::from_millis(1);
/// Times that a request is sent in all when the server fails it.
const ATTEMPTS: u32 = 4;
/// The wait before the second attempt; each further wait is four times as long.
const RETRY_FIRST: Duration = Duration::from_millis(2);
/// Attempts after which a further lane that never connected is given up.
const LANE_ATTEMPTS: u32 = 3;
/// Stack of the client's threads.
const STACK: usize = 128 << 10;

/// The options of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Longest time of a request, reconnecting included. After a server has been away for this
    /// long, requests fail at once.
    pub timeout: Duration,
    /// Number of connections, if the export allows several ([`ExportFlags::MULTI_CONN`]).
    pub connections: usize,
    /// Most bytes of data under way; a thread that makes a further request waits.
    pub in_flight_max: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { timeout: Duration::from_secs(30), connections: 4, in_flight_max: 16 << 20 }
    }
}

/// Recognises an export.
pub trait Known: Send + Sync {
    /// Examines an export over a fresh connection.
    ///
    /// # Errors
    /// [`ConnectError::Replaced`]: it is another export, for good. Other errors: the examination
    /// may be repeated.
    fn verify(&self, session: &mut Session) -> Result<(), ConnectError>;
}

/// Accepts any contents: only size and flags are compared. For exports whose contents nobody relies
/// on.
pub struct AnyContents;

impl Known for AnyContents {
    fn verify(&self, _: &mut Session) -> Result<(), ConnectError> {
        Ok(())
    }
}

/// One request.
#[derive(Debug)]
pub struct Operation {
    /// The command.
    pub command: Command,
    /// [`command_flags`](crate::wire::command_flags).
    pub flags: u16,
    /// Offset in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub length: u32,
    /// The data of a write.
    pub data: Vec<u8>,
}

/// Called with the outcome of a request: the data of a read, or the reason of its failure. A thread
/// of the client calls it, which it must not block.
pub type Done = Box<dyn FnOnce(Result<Vec<u8>, RequestError>) + Send>;

/// An event that is worth telling the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The last connection was lost, for this reason.
    Away(String),
    /// The server is back, after this time.
    Back(Duration),
    /// The export was replaced, and the stored pages are lost.
    Replaced(Replaced),
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Connections that were made again.
    pub reconnects: u64,
    /// Requests that were sent again, after a lost connection or an error of the server.
    pub resent: u64,
    /// Errors that the server reported.
    pub server_errors: u64,
    /// Requests that failed for want of an answer.
    pub timeouts: u64,
}

struct Pending {
    command: Command,
    flags: u16,
    offset: u64,
    length: u32,
    data: Arc<Vec<u8>>,
    /// `None` while a reply is being read into it.
    expected: Option<Expected>,
    deadline: Instant,
    attempts: u32,
    /// The request went out over the lane's present connection.
    sent: bool,
    /// The request went out over some connection, so the server may carry it out, however late.
    may_be_done: bool,
    /// The request is not sent before this time.
    not_before: Option<Instant>,
    done: Done,
}

#[derive(Default)]
struct Lane {
    waiting: Mutex<BTreeMap<u64, Pending>>,
    /// The writing direction; `None` while the lane is not connected. Locked before `waiting` where
    /// both are.
    requests: Mutex<Option<Requests>>,
    /// The socket by which any thread can end the present connection.
    end: Mutex<Option<Socket>>,
}

#[derive(Default)]
struct State {
    in_flight: u64,
    connected: Vec<bool>,
    away_since: Option<Instant>,
    away_was_told: bool,
    replaced: Option<Replaced>,
    stopping: bool,
    /// A request waits to be sent again.
    retrying: bool,
    events: Vec<Event>,
}

#[derive(Default)]
struct Counters {
    reconnects: AtomicU64,
    resent: AtomicU64,
    server_errors: AtomicU64,
    timeouts: AtomicU64,
}

struct LaneSet {
    uri: Uri,
    tls: Option<Tls>,
    settings: Settings,
    agreed: Agreed,
    known: Arc<dyn Known>,
    lanes: Vec<Lane>,
    state: Mutex<State>,
    changed: Condvar,
    next_cookie: AtomicU64,
    counters: Counters,
}

/// A client of one export. Dropping it stops it.
pub struct Client {
    lanes: Arc<LaneSet>,
    threads: Vec<JoinHandle<()>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A completion that panicked leaves nothing half done here.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Client {
    /// Starts a client on a connection that exists; its threads begin now.
    pub fn start(
        uri: Uri,
        tls: Option<Tls>,
        session: Session,
        settings: Settings,
        known: Arc<dyn Known>,
    ) -> Self {
        let agreed = session.agreed.clone();
        let count = if agreed.flags.has(ExportFlags::MULTI_CONN) { settings.connections.max(1) } else { 1 };
        let state = State { connected: vec![false; count], ..State::default() };
        let lanes = Arc::new(LaneSet {
            uri,
            tls,
            settings,
            agreed,
            known,
            lanes: (0..count).map(|_| Lane::default()).collect(),
            state: Mutex::new(state),
            changed: Condvar::new(),
            next_cookie: AtomicU64::new(1),
            counters: Counters::default(),
        });
        let mut threads = Vec::new();
        let mut first = Some(session);
        for index in 0..count {
            let (lanes, session) = (Arc::clone(&lanes), first.take());
            threads.extend(spawn("nbd-lane", move || lanes.run_lane(index, session)));
        }
        let keeper = Arc::clone(&lanes);
        threads.extend(spawn("nbd-keeper", move || keeper.keep()));
        Client { lanes, threads }
    }

    /// The result of the first negotiation.
    pub fn agreed(&self) -> &Agreed {
        &self.lanes.agreed
    }

    /// Connections that are ready now.
    pub fn connected(&self) -> usize {
        lock(&self.lanes.state).connected.iter().filter(|connected| **connected).count()
    }

    /// The counters.
    pub fn statistics(&self) -> Statistics {
        let counters = &self.lanes.counters;
        Statistics {
            reconnects: counters.reconnects.load(Relaxed),
            resent: counters.resent.load(Relaxed),
            server_errors: counters.server_errors.load(Relaxed),
            timeouts: counters.timeouts.load(Relaxed),
        }
    }

    /// The events since the last call.
    pub fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut lock(&self.lanes.state).events)
    }

    /// Makes a request, and returns when it is sent or waits for a connection. Blocks while too
    /// much is under way ([`Settings::in_flight_max`]), so a completion must not call it.
    pub fn submit(&self, operation: Operation, done: Done) {
        self.lanes.submit(operation, done);
    }

    fn wait_for(&self, operation: Operation) -> Result<Vec<u8>, RequestError> {
        let (sender, receiver) = mpsc::channel();
        let done = move |result| {
            let _ = sender.send(result);
        };
        self.submit(operation, Box::new(done));
        receiver.recv().unwrap_or(Err(RequestError::Stopped))
    }

    fn simple(
        &self,
        command: Command,
        flags: u16,
        offset: u64,
        length: u32,
    ) -> Result<Vec<u8>, RequestError> {
        self.wait_for(Operation { command, flags, offset, length, data: Vec::new() })
    }

    /// Reads, and waits for the data.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn read(&self, offset: u64, length: u32) -> Result<Vec<u8>, RequestError> {
        self.simple(Command::Read, 0, offset, length)
    }

    /// Writes, and waits for the end. `flags`: [`FUA`](crate::wire::command_flags::FUA) or 0.
    ///
    /// # Errors
    /// [`RequestError`]; the contents there are unknown then.
    pub fn write(&self, offset: u64, data: Vec<u8>, flags: u16) -> Result<(), RequestError> {
        let length = data.len() as u32;
        self.wait_for(Operation { command: Command::Write, flags, offset, length, data }).map(drop)
    }

    /// Waits until all writes that were answered before are on stable storage.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn flush(&self) -> Result<(), RequestError> {
        self.simple(Command::Flush, 0, 0, 0).map(drop)
    }

    /// Tells the server that bytes are no longer needed.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn trim(&self, offset: u64, length: u32) -> Result<(), RequestError> {
        self.simple(Command::Trim, 0, offset, length).map(drop)
    }

    /// Makes bytes zero.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn write_zeroes(&self, offset: u64, length: u32) -> Result<(), RequestError> {
        self.simple(Command::WriteZeroes, 0, offset, length).map(drop)
    }

    /// Treats the export as replaced: all requests under way fail, and so does every further one.
    pub fn give_up(&self, replaced: Replaced) {
        self.lanes.give_up(replaced);
    }

    /// Disconnects from the server. Requests under way fail.
    pub fn stop(&mut self) {
        self.lanes.stop();
        for thread in self.threads.drain(..) {
            // A completion may be dropping the client.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stop();
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Option<JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).stack_size(STACK).spawn(run).ok()
}

/// A request that has ended.
struct Ended(Pending, Result<Vec<u8>, RequestError>);

/// Bytes of data that a request holds.
fn data_bytes(command: Command, length: u32) -> u64 {
    match command {
        Command::Read | Command::Write => length.into(),
        _ => 0,
    }
}
