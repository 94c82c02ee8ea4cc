//! A lane: its connection, which is renewed when it is lost, and the replies that come over it.

use super::{
    ATTEMPTS, BACKOFF_FIRST, BACKOFF_MAX, CONNECT_PATIENCE, Ended, Event, LANE_ATTEMPTS, Lane, LaneSet,
    RETRY_FIRST, STACK, data_bytes, lock,
};
use crate::buffers;
use crate::error::{ConnectError, Replaced, RequestError};
use crate::reply::{Expected, ReplyError, ReplyStyle, Waiting, read_reply};
use crate::session::{Replies, Requests, Session, Socket};
use crate::wire::ExportFlags;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Instant;

/// A lane's next connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Connection {
    First,
    /// The lane was connected before.
    Renewed,
}

/// Whether replies came over a connection before it failed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RepliesRead {
    Some,
    None,
}

impl LaneSet {
    pub(super) fn run_lane(&self, index: usize, first: Option<Session>) {
        let (mut session, mut backoff, mut failures) = (first, BACKOFF_FIRST, 0);
        let (mut connection, mut last_error) = (Connection::First, None);
        loop {
            if lock(&self.state).refuses_all() {
                return;
            }
            let opened = match session.take() {
                Some(session) => Ok(session),
                None => self.connect_again(),
            };
            let split = opened.and_then(|session| {
                // Another server may answer in the place of the first one, with another reply
                // style.
                let style = session.agreed.style;
                session.split().map(|parts| (style, parts)).map_err(ConnectError::Broken)
            });
            match split {
                Ok((style, (requests, mut replies, end))) => {
                    let cookies = self.install(index, requests, end, connection);
                    connection = Connection::Renewed;
                    let (replies_read, error) = thread::scope(|scope| {
                        // Sending begins only when replies are read: otherwise both directions
                        // could be full, and neither side would continue.
                        let sends = || self.send_waiting(index, &cookies);
                        let sender = thread::Builder::new().name("nbd-again".into()).stack_size(STACK);
                        if !cookies.is_empty() && sender.spawn_scoped(scope, sends).is_err() {
                            self.lanes[index].end_connection();
                        }
                        let read = self.read_replies(index, style, &mut replies);
                        // Ending the connection makes the sender end too.
                        self.lanes[index].end_connection();
                        read
                    });
                    if replies_read == RepliesRead::Some {
                        backoff = BACKOFF_FIRST;
                    }
                    last_error = Some(error.to_string());
                    self.uninstall(index);
                }
                Err(ConnectError::Replaced(replaced)) => return self.give_up(replaced),
                Err(error) => {
                    failures += 1;
                    if index > 0 && connection == Connection::First && failures >= LANE_ATTEMPTS {
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

    /// Makes a fresh connection, to the known export.
    pub(super) fn connect_again(&self) -> Result<Session, ConnectError> {
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

    /// Gives a lane its connection. Returns the requests that wait for it, oldest first; they are
    /// to be sent while replies are read.
    pub(super) fn install(
        &self,
        index: usize,
        requests: Requests,
        end: Socket,
        connection: Connection,
    ) -> Vec<u64> {
        let lane = &self.lanes[index];
        let mut current = lock(&lane.requests);
        *lock(&lane.end) = Some(end);
        *current = Some(requests);
        let cookies: Vec<u64> = lock(&lane.waiting).keys().copied().collect();
        if connection == Connection::Renewed {
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
            // The client was stopped before this connection could be ended.
            if state.refuses_all() {
                lane.end_connection();
            }
        }
        cookies
    }

    /// Sends the requests that waited for a lane's connection. Other threads may send in between.
    pub(super) fn send_waiting(&self, index: usize, cookies: &[u64]) {
        let lane = &self.lanes[index];
        for &cookie in cookies {
            match &mut *lock(&lane.requests) {
                Some(requests) => self.send_one(lane, requests, cookie),
                None => return,
            }
        }
    }

    /// Takes a lost connection off its lane. Its requests go to another lane, or wait for the next
    /// connection.
    pub(super) fn uninstall(&self, index: usize) {
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
            // A partial reply counts for nothing. An expected reply that was being read into was
            // put back before the reader ended.
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

    /// Reads replies until the connection fails.
    pub(super) fn read_replies(
        &self,
        index: usize,
        style: ReplyStyle,
        replies: &mut Replies,
    ) -> (RepliesRead, ReplyError) {
        let mut table = Table { lanes: self, lane: &self.lanes[index], ended: Vec::new() };
        let mut replies_read = RepliesRead::None;
        loop {
            let read = read_reply(replies, style, &mut table);
            self.end_all(&mut table.ended);
            match read {
                Ok(()) => replies_read = RepliesRead::Some,
                Err(ReplyError::Idle) => {}
                Err(error) => return (replies_read, error),
            }
        }
    }

    pub(super) fn end_all(&self, ended: &mut Vec<Ended>) {
        if ended.is_empty() {
            return;
        }
        let bytes: u64 =
            ended.iter().map(|Ended(pending, _)| data_bytes(pending.command, pending.length)).sum();
        lock(&self.state).in_flight -= bytes;
        self.changed.notify_all();
        for Ended(pending, result) in ended.drain(..) {
            // The thread that sent the data may still refer to it.
            Arc::try_unwrap(pending.data).into_iter().for_each(buffers::give_back);
            (pending.done)(result);
        }
    }
}

impl Lane {
    pub(super) fn end_connection(&self) {
        if let Some(socket) = &*lock(&self.end) {
            socket.end();
        }
    }
}

/// Whether the same request may succeed a moment later: EIO, ENOMEM, ESHUTDOWN.
const fn may_pass(error: u32) -> bool {
    matches!(error, 5 | 12 | 108)
}

/// A lane's requests, as its reader uses them.
struct Table<'s> {
    lanes: &'s LaneSet,
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
            self.lanes.counters.server_errors.fetch_add(1, Relaxed);
            if pending.attempts < ATTEMPTS && may_pass(error) {
                expected.again();
                pending.expected = Some(expected);
                pending.not_before = Some(Instant::now() + RETRY_FIRST * 4_u32.pow(pending.attempts - 1));
                pending.attempts += 1;
                pending.sent = false;
                drop(waiting);
                lock(&self.lanes.state).retrying = true;
                self.lanes.changed.notify_all();
                return;
            }
        }
        match expected.finish() {
            Ok(result) => {
                let Some(pending) = waiting.remove(&cookie) else { return };
                self.ended.push(Ended(pending, result.map_err(RequestError::Server)));
            }
            // The request is made again over a new connection.
            Err(_) => self.lane.end_connection(),
        }
    }
}
