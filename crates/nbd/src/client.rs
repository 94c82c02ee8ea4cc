//! Requests to an export over one or several connections (*lanes*).
//!
//! Many requests may be under way; each has a deadline. A lane that fails reconnects by itself, ever more slowly; before anything
//! is sent again the export must prove that it is the one that it was ([`Known`]). Every request can be sent twice without harm: reads,
//! and writes that nobody else overlaps (whoever writes sees to that, see [`crate::store`]).
//!
//! Threads: one for each lane, which reads its replies, and one *keeper* that watches deadlines. Requests are sent by whoever makes them;
//! what waited for a lane's connection is sent by a thread that lives as long as that takes.

use crate::error::{ConnectError, Replaced, RequestError};
use crate::reply::{Expected, ReplyError, ReplyStyle, Waiting, read_reply};
use crate::session::{Agreed, Requests, Session, Socket};
use crate::tls::Tls;
use crate::uri::Uri;
use crate::wire::{Command, ExportFlags, Request, command_flags};
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
    /// [`command_flags`].
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

    /// Writes, and waits for it. `flags`: [`command_flags::FUA`] or 0.
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

impl Shared {
    fn check(&self, operation: &Operation) -> Result<(), RequestError> {
        let (flags, agreed) = (self.agreed.flags, &self.agreed);
        let can = match operation.command {
            Command::Read => true,
            Command::Write => !flags.has(ExportFlags::READ_ONLY),
            Command::Flush => flags.has(ExportFlags::FLUSH),
            Command::Trim => flags.has(ExportFlags::TRIM),
            Command::WriteZeroes => flags.has(ExportFlags::WRITE_ZEROES),
            Command::Disconnect => false,
        };
        if !can || operation.flags & command_flags::FUA != 0 && !flags.has(ExportFlags::FUA) {
            return Err(RequestError::Unsupported);
        }
        let Operation { offset, length, .. } = *operation;
        let wrong = RequestError::Range { offset, length: length.into() };
        let has_data = matches!(operation.command, Command::Read | Command::Write);
        let end = offset.checked_add(length.into()).ok_or(wrong)?;
        let block = u64::from(agreed.block);
        let fits = end <= agreed.size
            && (operation.command == Command::Flush || length > 0)
            && offset.is_multiple_of(block)
            && end.is_multiple_of(block)
            && (!has_data || length <= agreed.request_max)
            && (operation.command == Command::Write || operation.data.is_empty())
            && (operation.command != Command::Write || operation.data.len() == length as usize);
        if fits { Ok(()) } else { Err(wrong) }
    }

    fn submit(&self, operation: Operation, done: Done) {
        if let Err(error) = self.check(&operation) {
            return done(Err(error));
        }
        let Operation { command, flags, offset, length, data } = operation;
        let held = data_bytes(command, length);
        let deadline = {
            let mut state = lock(&self.state);
            loop {
                if let Some(error) = state.refusal(self.settings.timeout) {
                    drop(state);
                    return done(Err(error));
                }
                if state.in_flight == 0 || state.in_flight + held <= self.settings.in_flight_max {
                    break;
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.in_flight += held;
            state.away_since.unwrap_or_else(Instant::now) + self.settings.timeout
        };
        let expected = Some(command.expected(offset, length));
        // One chunk is less to read than several.
        let whole = command == Command::Read && self.agreed.style == ReplyStyle::Structured;
        let flags = match whole && length <= 64 << 10 && self.agreed.flags.has(ExportFlags::DF) {
            true => flags | command_flags::DF,
            false => flags,
        };
        let (data, attempts, sent, may_be_done, not_before) = (Arc::new(data), 1, false, false, None);
        let pending = Pending {
            command,
            flags,
            offset,
            length,
            data,
            expected,
            deadline,
            attempts,
            sent,
            may_be_done,
            not_before,
            done,
        };
        self.send_over(self.best_lane(None), pending);
    }

    /// The connected lane with the least under way; the first one when none is connected.
    fn best_lane(&self, but: Option<usize>) -> usize {
        let connected = lock(&self.state).connected.clone();
        let ready = (0..self.lanes.len()).filter(|&index| connected[index] && Some(index) != but);
        ready.min_by_key(|&index| lock(&self.lanes[index].waiting).len()).unwrap_or(0)
    }

    fn send_over(&self, lane: usize, pending: Pending) {
        let cookie = self.next_cookie.fetch_add(1, Relaxed);
        let lane = &self.lanes[lane];
        lock(&lane.waiting).insert(cookie, pending);
        // It may have been stopped meanwhile, and then nobody would look after it any more.
        if lock(&self.state).refuses_all() {
            self.fail_all();
            return;
        }
        let mut requests = lock(&lane.requests);
        if let Some(requests) = &mut *requests {
            self.send_one(lane, requests, cookie);
        }
    }

    /// Sends a request over the lane's connection, unless that has happened. The lane's `requests` are locked by the caller.
    fn send_one(&self, lane: &Lane, requests: &mut Requests, cookie: u64) {
        let (head, data) = {
            let mut waiting = lock(&lane.waiting);
            let Some(pending) = waiting.get_mut(&cookie) else { return };
            if pending.sent || pending.not_before.is_some() {
                return;
            }
            pending.sent = true;
            pending.may_be_done = true;
            let Pending { command, flags, offset, length, .. } = *pending;
            (Request { flags, command, cookie, offset, length }.encode(), Arc::clone(&pending.data))
        };
        if requests.send(&head, &data).is_err() {
            lane.end_connection();
        }
    }

    fn run_lane(&self, index: usize, first: Option<Session>) {
        let (mut session, mut backoff, mut failures) = (first, BACKOFF_FIRST, 0);
        let (mut was_connected, mut last_error) = (false, None);
        loop {
            if lock(&self.state).refuses_all() {
                return;
            }
            let opened = match session.take() {
                Some(session) => Ok(session),
                None => self.connect_again(),
            };
            let split = opened.and_then(|session| {
                // Another server may answer in the place of the first one, in its own way.
                let style = session.agreed.style;
                session.split().map(|parts| (style, parts)).map_err(ConnectError::Broken)
            });
            match split {
                Ok((style, (requests, mut replies, end))) => {
                    let cookies = self.install(index, requests, end, was_connected);
                    was_connected = true;
                    let (served, error) = thread::scope(|scope| {
                        // Not before replies are read: both directions could be full, and then nothing would go on.
                        let sends = || self.send_waiting(index, &cookies);
                        let sender = thread::Builder::new().name("nbd-again".into()).stack_size(STACK);
                        if !cookies.is_empty() && sender.spawn_scoped(scope, sends).is_err() {
                            self.lanes[index].end_connection();
                        }
                        let read = self.read_replies(index, style, &mut replies);
                        // So that the sender ends, too.
                        self.lanes[index].end_connection();
                        read
                    });
                    if served {
                        backoff = BACKOFF_FIRST;
                    }
                    last_error = Some(error.to_string());
                    self.uninstall(index);
                }
                Err(ConnectError::Replaced(replaced)) => return self.give_up(replaced),
                Err(error) => {
                    failures += 1;
                    if index > 0 && !was_connected && failures >= LANE_ATTEMPTS {
                        return;
                    }
                    last_error.get_or_insert_with(|| error.to_string());
                }
            }
            let mut state = lock(&self.state);
            if state.stopping {
                return;
            }
            if index == 0 && state.connected.iter().all(|connected| !connected) && !state.away_was_told {
                state.away_was_told = true;
                let why = last_error.take().unwrap_or_default();
                state.events.push(Event::Away(why));
            }
            let (state, _) = self
                .changed
                .wait_timeout_while(state, backoff, |state| !state.refuses_all())
                .unwrap_or_else(PoisonError::into_inner);
            drop(state);
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    /// A fresh connection, to the export that we know.
    fn connect_again(&self) -> Result<Session, ConnectError> {
        let mut session = Session::connect(&self.uri, self.tls.as_ref(), CONNECT_PATIENCE)?;
        let (before, now) = (&self.agreed, &session.agreed);
        if before.size != now.size {
            return Err(ConnectError::Replaced(Replaced::Size { before: before.size, now: now.size }));
        }
        let lost = before.flags.0 & !now.flags.0 != 0 || now.flags.has(ExportFlags::READ_ONLY);
        if lost || now.block > before.block || now.request_max < before.request_max {
            let (before, now) = (before.flags.0, now.flags.0);
            return Err(ConnectError::Replaced(Replaced::Flags { before, now }));
        }
        self.known.verify(&mut session)?;
        Ok(session)
    }

    /// A lane has a connection. Returns what waits for it, oldest first: it is to be sent while replies are read.
    fn install(&self, index: usize, requests: Requests, end: Socket, again: bool) -> Vec<u64> {
        let lane = &self.lanes[index];
        let mut place = lock(&lane.requests);
        *lock(&lane.end) = Some(end);
        *place = Some(requests);
        let cookies: Vec<u64> = lock(&lane.waiting).keys().copied().collect();
        if again {
            self.counters.reconnects.fetch_add(1, Relaxed);
            self.counters.resent.fetch_add(cookies.len() as u64, Relaxed);
        }
        {
            let mut state = lock(&self.state);
            state.connected[index] = true;
            if let Some(since) = state.away_since.take() {
                let told = std::mem::take(&mut state.away_was_told);
                let back = told.then(|| Event::Back(since.elapsed()));
                state.events.extend(back);
            }
            // Somebody stopped us before this connection could be ended.
            if state.refuses_all() {
                lane.end_connection();
            }
        }
        cookies
    }

    /// Sends what waited for a lane's connection. Others may send between.
    fn send_waiting(&self, index: usize, cookies: &[u64]) {
        let lane = &self.lanes[index];
        for &cookie in cookies {
            match &mut *lock(&lane.requests) {
                Some(requests) => self.send_one(lane, requests, cookie),
                None => return,
            }
        }
    }

    /// A lane has lost its connection: what was under way goes to another lane, or waits for the next connection.
    fn uninstall(&self, index: usize) {
        let lane = &self.lanes[index];
        lane.end_connection();
        *lock(&lane.requests) = None;
        *lock(&lane.end) = None;
        let others = {
            let mut state = lock(&self.state);
            state.connected[index] = false;
            let others = state.connected.contains(&true);
            if !others && state.away_since.is_none() {
                state.away_since = Some(Instant::now());
            }
            others
        };
        let mut waiting = lock(&lane.waiting);
        for pending in waiting.values_mut() {
            pending.sent = false;
            // A part of a reply counts for nothing. One that was being read into was given back before the reader ended.
            let expected = pending
                .expected
                .get_or_insert_with(|| pending.command.expected(pending.offset, pending.length));
            expected.again();
        }
        if others || index > 0 {
            let moved = std::mem::take(&mut *waiting);
            drop(waiting);
            self.counters.resent.fetch_add(moved.len() as u64, Relaxed);
            let other = self.best_lane(Some(index));
            moved.into_values().for_each(|pending| self.send_over(other, pending));
        }
    }

    /// Reads replies until the connection fails. Says whether any came.
    fn read_replies(
        &self,
        index: usize,
        style: ReplyStyle,
        replies: &mut crate::session::Replies,
    ) -> (bool, ReplyError) {
        let mut table = Table { shared: self, lane: &self.lanes[index], ended: Vec::new() };
        let mut served = false;
        loop {
            let read = read_reply(replies, style, &mut table);
            self.end_all(&mut table.ended);
            match read {
                Ok(()) => served = true,
                Err(ReplyError::Idle) => {}
                Err(error) => return (served, error),
            }
        }
    }

    fn end_all(&self, ended: &mut Vec<Ended>) {
        if ended.is_empty() {
            return;
        }
        let bytes: u64 =
            ended.iter().map(|Ended(pending, _)| data_bytes(pending.command, pending.length)).sum();
        lock(&self.state).in_flight -= bytes;
        self.changed.notify_all();
        ended.drain(..).for_each(|Ended(pending, result)| (pending.done)(result));
    }

    /// Watches deadlines, and sends again what the server failed, until it is stopped.
    fn keep(&self) {
        loop {
            {
                let mut state = lock(&self.state);
                if state.refuses_all() {
                    break;
                }
                let tick = match (std::mem::take(&mut state.retrying), state.in_flight) {
                    (true, _) => TICK_RETRY,
                    (false, 0) => TICK_IDLE,
                    (false, _) => TICK_BUSY,
                };
                let quiet = |state: &mut State| !state.refuses_all() && !state.retrying;
                let _ = self.changed.wait_timeout_while(state, tick, quiet);
            }
            let now = Instant::now();
            let retrying =
                self.lanes.iter().map(|lane| self.look_after(lane, now)).fold(false, |any, one| any | one);
            lock(&self.state).retrying |= retrying;
        }
        self.fail_all();
    }

    /// True: a request waits to be sent again.
    fn look_after(&self, lane: &Lane, now: Instant) -> bool {
        let mut ended = Vec::new();
        let mut due = Vec::new();
        let retrying = {
            let mut waiting = lock(&lane.waiting);
            for (cookie, pending) in waiting.iter_mut() {
                if pending.not_before.is_some_and(|at| at <= now) {
                    pending.not_before = None;
                    due.push(*cookie);
                }
            }
            let late: Vec<u64> = waiting
                .iter()
                .filter(|(_, pending)| pending.deadline <= now)
                .map(|(cookie, _)| *cookie)
                .collect();
            ended.extend(late.iter().filter_map(|cookie| waiting.remove(cookie)));
            waiting.values().any(|pending| pending.not_before.is_some())
        };
        if ended.iter().any(|pending| pending.sent) {
            // Whoever does not answer one does not answer the others either, and a late answer would belong to nobody.
            lane.end_connection();
        }
        let is_away = lock(&self.state).away_since.is_some();
        // A write that the server may do still is not forgotten because the connection is.
        let why = |pending: &Pending| match is_away
            && !(pending.command == Command::Write && pending.may_be_done)
        {
            true => RequestError::Away,
            false => RequestError::TimedOut,
        };
        self.counters.timeouts.fetch_add(ended.len() as u64, Relaxed);
        let end = |pending: Pending| {
            let why = why(&pending);
            Ended(pending, Err(why))
        };
        self.end_all(&mut ended.into_iter().map(end).collect());
        if !due.is_empty() {
            let mut requests = lock(&lane.requests);
            if let Some(requests) = &mut *requests {
                self.counters.resent.fetch_add(due.len() as u64, Relaxed);
                due.into_iter().for_each(|cookie| self.send_one(lane, requests, cookie));
            }
        }
        retrying
    }

    fn give_up(&self, replaced: Replaced) {
        {
            let mut state = lock(&self.state);
            if state.replaced.is_none() && !state.stopping {
                state.replaced = Some(replaced);
                state.events.push(Event::Replaced(replaced));
            }
        }
        self.changed.notify_all();
        self.lanes.iter().for_each(Lane::end_connection);
        self.fail_all();
    }

    fn stop(&self) {
        lock(&self.state).stopping = true;
        self.changed.notify_all();
        let request = Request { flags: 0, command: Command::Disconnect, cookie: 0, offset: 0, length: 0 };
        for lane in &self.lanes {
            // Whoever sends just now may be stuck: then the server does without a goodbye.
            if let Ok(mut requests) = lane.requests.try_lock()
                && let Some(requests) = &mut *requests
            {
                let _ = requests.send(&request.encode(), &[]);
            }
            lane.end_connection();
        }
    }

    /// Everything under way fails: nobody will answer it.
    fn fail_all(&self) {
        let error = lock(&self.state).refusal(self.settings.timeout).unwrap_or(RequestError::Stopped);
        for lane in &self.lanes {
            let failed = std::mem::take(&mut *lock(&lane.waiting));
            self.end_all(&mut failed.into_values().map(|pending| Ended(pending, Err(error))).collect());
        }
    }
}

impl State {
    fn refuses_all(&self) -> bool {
        self.stopping || self.replaced.is_some()
    }

    fn refusal(&self, timeout: Duration) -> Option<RequestError> {
        match (self.replaced, self.stopping, self.away_since) {
            (Some(replaced), ..) => Some(RequestError::Replaced(replaced)),
            (_, true, _) => Some(RequestError::Stopped),
            (_, _, Some(since)) if since.elapsed() >= timeout => Some(RequestError::Away),
            _ => None,
        }
    }
}

impl Lane {
    fn end_connection(&self) {
        if let Some(socket) = &*lock(&self.end) {
            socket.end();
        }
    }
}

impl Command {
    fn expected(self, offset: u64, length: u32) -> Expected {
        match self {
            Command::Read => Expected::data(offset, length),
            _ => Expected::no_data(),
        }
    }
}

/// Can the same request succeed a moment later? EIO, ENOMEM, ESHUTDOWN.
const fn may_pass(error: u32) -> bool {
    matches!(error, 5 | 12 | 108)
}

/// Bytes of data that a request holds.
fn data_bytes(command: Command, length: u32) -> u64 {
    match command {
        Command::Read | Command::Write => length.into(),
        _ => 0,
    }
}

/// A lane's requests, as its reader sees them.
struct Table<'s> {
    shared: &'s Shared,
    lane: &'s Lane,
    ended: Vec<Ended>,
}

impl Waiting for Table<'_> {
    fn lend(&mut self, cookie: u64) -> Option<Expected> {
        lock(&self.lane.waiting).get_mut(&cookie).filter(|pending| pending.sent)?.expected.take()
    }

    fn put_back(&mut self, cookie: u64, expected: Expected) {
        if let Some(pending) = lock(&self.lane.waiting).get_mut(&cookie) {
            pending.expected = Some(expected);
        }
    }

    fn done(&mut self, cookie: u64, mut expected: Expected) {
        let mut waiting = lock(&self.lane.waiting);
        let Some(pending) = waiting.get_mut(&cookie) else { return };
        if let Some(error) = expected.error() {
            self.shared.counters.server_errors.fetch_add(1, Relaxed);
            if pending.attempts < ATTEMPTS && may_pass(error) {
                expected.again();
                pending.expected = Some(expected);
                pending.not_before = Some(Instant::now() + RETRY_FIRST * 4_u32.pow(pending.attempts - 1));
                pending.attempts += 1;
                pending.sent = false;
                drop(waiting);
                lock(&self.shared.state).retrying = true;
                self.shared.changed.notify_all();
                return;
            }
        }
        match expected.finish() {
            Ok(result) => {
                let Some(pending) = waiting.remove(&cookie) else { return };
                self.ended.push(Ended(pending, result.map_err(RequestError::Server)));
            }
            // It is asked again over a new connection.
            Err(_) => self.lane.end_connection(),
        }
    }
}
