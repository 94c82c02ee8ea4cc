//! Requests to an export over one or several connections (*lanes*).
//!
//! Many requests may be under way; each has a deadline. A lane that fails reconnects by itself, ever more slowly; before anything
//! is sent again the export must prove that it is the one that it was ([`Known`]). Every request can be sent twice without harm: reads,
//! and writes that nobody else overlaps (whoever writes sees to that, see [`crate::store`]).
//!
//! Threads: one for each lane, which reads its replies, and one *keeper* that watches deadlines. Requests are sent by whoever makes them;
//! what waited for a lane's connection is sent by a thread that lives as long as that takes.

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

/// How long a step of connecting may take.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// Between attempts to reconnect: at first, and at most.
const BACKOFF_FIRST: Duration = Duration::from_millis(20);
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Between two looks of the keeper while requests are under way, and while none is.
const TICK_BUSY: Duration = Duration::from_millis(10);
const TICK_IDLE: Duration = Duration::from_millis(100);
/// The same while a request waits to be sent again.
const TICK_RETRY: Duration = Duration::from_millis(1);
/// A request that the server fails is sent so many times in all.
const ATTEMPTS: u32 = 4;
/// Before the second attempt; each further one waits four times as long.
const RETRY_FIRST: Duration = Duration::from_millis(2);
/// A further lane that never connected is given up after so many attempts.
const LANE_ATTEMPTS: u32 = 3;
/// Stack of our threads.
const STACK: usize = 128 << 10;

/// How a client behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long a request may take, reconnecting included; and for how long a server may be away before requests fail at once.
    pub timeout: Duration,
    /// Connections, if the export allows several ([`ExportFlags::MULTI_CONN`]).
    pub connections: usize,
    /// Bytes of data under way; who asks for more waits.
    pub in_flight_max: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { timeout: Duration::from_secs(30), connections: 4, in_flight_max: 16 << 20 }
    }
}

/// Knows an export again.
pub trait Known: Send + Sync {
    /// Looks at an export over a fresh connection.
    ///
    /// # Errors
    /// [`ConnectError::Replaced`]: it is another one, for good. Others: it may be tried again.
    fn verify(&self, session: &mut Session) -> Result<(), ConnectError>;
}

/// For exports whose contents nobody relies on: size and flags are all that is compared.
pub struct AnyContents;

impl Known for AnyContents {
    fn verify(&self, _: &mut Session) -> Result<(), ConnectError> {
        Ok(())
    }
}

/// One request.
#[derive(Debug)]
pub struct Operation {
    /// What.
    pub command: Command,
    /// [`command_flags`](crate::wire::command_flags).
    pub flags: u16,
    /// Where, in bytes.
    pub offset: u64,
    /// How many bytes.
    pub length: u32,
    /// The data of a write.
    pub data: Vec<u8>,
}

/// Is told how a request ended: the data of a read, or why it failed. Called by a thread of the client, which it must not block.
pub type Done = Box<dyn FnOnce(Result<Vec<u8>, RequestError>) + Send>;

/// Something worth telling the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// No connection is left; why.
    Away(String),
    /// The server is back, after so long.
    Back(Duration),
    /// The export was replaced: what was stored is lost.
    Replaced(Replaced),
}

/// What was counted since the start.
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
    /// None while a reply is being read into it.
    expected: Option<Expected>,
    deadline: Instant,
    attempts: u32,
    /// It went out over the lane's present connection.
    sent: bool,
    /// It went out over some connection: the server may do it, however late.
    may_be_done: bool,
    /// Not to be sent before.
    not_before: Option<Instant>,
    done: Done,
}

#[derive(Default)]
struct Lane {
    waiting: Mutex<BTreeMap<u64, Pending>>,
    /// Where requests go; none while it is not connected. Taken before `waiting` where both are.
    requests: Mutex<Option<Requests>>,
    /// By which the present connection can be ended from any thread.
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

struct Shared {
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

/// A client of one export. Stops when it is dropped.
pub struct Client {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A completion that panicked leaves nothing half done here.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Client {
    /// Goes on with a connection that was made; its threads begin now.
    pub fn start(
        uri: Uri,
        tls: Option<Tls>,
        session: Session,
        settings: Settings,
        known: Arc<dyn Known>,
    ) -> Self {
        let agreed = session.agreed.clone();
        let lanes = if agreed.flags.has(ExportFlags::MULTI_CONN) { settings.connections.max(1) } else { 1 };
        let state = State { connected: vec![false; lanes], ..State::default() };
        let shared = Arc::new(Shared {
            uri,
            tls,
            settings,
            agreed,
            known,
            lanes: (0..lanes).map(|_| Lane::default()).collect(),
            state: Mutex::new(state),
            changed: Condvar::new(),
            next_cookie: AtomicU64::new(1),
            counters: Counters::default(),
        });
        let mut threads = Vec::new();
        let mut first = Some(session);
        for index in 0..lanes {
            let (shared, session) = (Arc::clone(&shared), first.take());
            threads.extend(spawn("nbd-lane", move || shared.run_lane(index, session)));
        }
        let keeper = Arc::clone(&shared);
        threads.extend(spawn("nbd-keeper", move || keeper.keep()));
        Client { shared, threads }
    }

    /// What was agreed upon with the server at first.
    pub fn agreed(&self) -> &Agreed {
        &self.shared.agreed
    }

    /// Connections that are ready now.
    pub fn connected(&self) -> usize {
        lock(&self.shared.state).connected.iter().filter(|connected| **connected).count()
    }

    /// What was counted.
    pub fn statistics(&self) -> Statistics {
        let counters = &self.shared.counters;
        Statistics {
            reconnects: counters.reconnects.load(Relaxed),
            resent: counters.resent.load(Relaxed),
            server_errors: counters.server_errors.load(Relaxed),
            timeouts: counters.timeouts.load(Relaxed),
        }
    }

    /// What happened since it was last asked.
    pub fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut lock(&self.shared.state).events)
    }

    /// Makes a request; returns when it was sent, or has to wait for a connection. Waits while too much is under way
    /// ([`Settings::in_flight_max`]), so not for a completion.
    pub fn submit(&self, operation: Operation, done: Done) {
        self.shared.submit(operation, done);
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

    /// Reads, and waits for it.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn read(&self, offset: u64, length: u32) -> Result<Vec<u8>, RequestError> {
        self.simple(Command::Read, 0, offset, length)
    }

    /// Writes, and waits for it. `flags`: [`FUA`](crate::wire::command_flags::FUA) or 0.
    ///
    /// # Errors
    /// [`RequestError`]; what stands there then is unknown.
    pub fn write(&self, offset: u64, data: Vec<u8>, flags: u16) -> Result<(), RequestError> {
        let length = data.len() as u32;
        self.wait_for(Operation { command: Command::Write, flags, offset, length, data }).map(drop)
    }

    /// Waits until what was answered before is on stable storage.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn flush(&self) -> Result<(), RequestError> {
        self.simple(Command::Flush, 0, 0, 0).map(drop)
    }

    /// Gives bytes up.
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

    /// The export is not the one that it was: what is under way fails, and so does whatever comes.
    pub fn give_up(&self, replaced: Replaced) {
        self.shared.give_up(replaced);
    }

    /// Takes leave of the server. What is under way fails.
    pub fn stop(&mut self) {
        self.shared.stop();
        for thread in self.threads.drain(..) {
            // A completion may be what drops the client.
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
