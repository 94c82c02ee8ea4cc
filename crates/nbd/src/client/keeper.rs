//! The tasks that span all lanes: deadlines, giving up, and the end.

use super::Event;
use super::{Ended, Lane, LaneSet, Pending, State, TICK_BUSY, TICK_IDLE, TICK_RETRY, lock};
use crate::error::{Replaced, RequestError};
use crate::wire::{Command, Request};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Whether a lane has requests that wait to be sent again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Retries {
    Waiting,
    None,
}

impl LaneSet {
    /// Watches deadlines, and repeats requests that the server failed, until the client is stopped.
    pub(super) fn keep(&self) {
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
            // Every lane is looked after, whatever the lanes before it return.
            let retrying =
                self.lanes.iter().filter(|lane| self.look_after(lane, now) == Retries::Waiting).count();
            lock(&self.state).retrying |= retrying > 0;
        }
        self.fail_all();
    }

    /// Fails a lane's late requests, and sends those again whose wait is over.
    fn look_after(&self, lane: &Lane, now: Instant) -> Retries {
        let mut ended = Vec::new();
        let mut due = Vec::new();
        let retries = {
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
            match waiting.values().any(|pending| pending.not_before.is_some()) {
                true => Retries::Waiting,
                false => Retries::None,
            }
        };
        // As it was before the connection is ended here.
        let is_away = lock(&self.state).away_since.is_some();
        if ended.iter().any(|pending| pending.sent) {
            // A server that leaves one request unanswered leaves the others unanswered too, and a
            // late answer would belong to no request.
            lane.end_connection();
        }
        // A write that the server may still carry out is not forgotten when the connection is.
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
        retries
    }

    pub(super) fn give_up(&self, replaced: Replaced) {
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

    pub(super) fn stop(&self) {
        lock(&self.state).stopping = true;
        self.changed.notify_all();
        let request = Request { flags: 0, command: Command::Disconnect, cookie: 0, offset: 0, length: 0 };
        for lane in &self.lanes {
            // A thread that is sending may be stuck; the server then gets no goodbye.
            if let Ok(mut requests) = lane.requests.try_lock()
                && let Some(requests) = &mut *requests
            {
                let _ = requests.send(&request.encode(), &[]);
            }
            lane.end_connection();
        }
    }

    /// Fails everything under way, because no answer will come.
    pub(super) fn fail_all(&self) {
        let error = lock(&self.state).refusal(self.settings.timeout).unwrap_or(RequestError::Stopped);
        for lane in &self.lanes {
            let failed = std::mem::take(&mut *lock(&lane.waiting));
            self.end_all(&mut failed.into_values().map(|pending| Ended(pending, Err(error))).collect());
        }
    }
}

impl State {
    pub(super) fn refuses_all(&self) -> bool {
        self.stopping || self.replaced.is_some()
    }

    pub(super) fn refusal(&self, timeout: Duration) -> Option<RequestError> {
        match (self.replaced, self.stopping, self.away_since) {
            (Some(replaced), ..) => Some(RequestError::Replaced(replaced)),
            (_, true, _) => Some(RequestError::Stopped),
            (_, _, Some(since)) if since.elapsed() >= timeout => Some(RequestError::Away),
            _ => None,
        }
    }
}
