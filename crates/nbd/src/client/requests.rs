//! The way of a request out: validation, waiting for memory, choosing a lane, and sending.

use super::{Lane, LaneSet, Operation, Pending, RequestError, data_bytes, lock};
use crate::client::Done;
use crate::reply::Expected;
use crate::session::Requests;
use crate::wire::{Command, ExportFlags, Request, command_flags};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

impl LaneSet {
    pub(super) fn check(&self, operation: &Operation) -> Result<(), RequestError> {
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

    pub(super) fn submit(&self, operation: Operation, done: Done) {
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

    /// The connected lane with the fewest requests under way; the first lane when none is
    /// connected.
    pub(super) fn best_lane(&self, but: Option<usize>) -> usize {
        let connected = lock(&self.state).connected.clone();
        let ready = (0..self.lanes.len()).filter(|&index| connected[index] && Some(index) != but);
        ready.min_by_key(|&index| lock(&self.lanes[index].waiting).len()).unwrap_or(0)
    }

    pub(super) fn send_over(&self, lane: usize, pending: Pending) {
        let cookie = self.next_cookie.fetch_add(1, Relaxed);
        let lane = &self.lanes[lane];
        lock(&lane.waiting).insert(cookie, pending);
        // The client may have been stopped meanwhile, and then no thread would look after the
        // request.
        if lock(&self.state).refuses_all() {
            self.fail_all();
            return;
        }
        let mut requests = lock(&lane.requests);
        if let Some(requests) = &mut *requests {
            self.send_one(lane, requests, cookie);
        }
    }

    /// Sends a request over the lane's connection, unless that has happened. The caller holds the
    /// lock of the lane's `requests`.
    pub(super) fn send_one(&self, lane: &Lane, requests: &mut Requests, cookie: u64) {
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
}

impl Command {
    pub(super) fn expected(self, offset: u64, length: u32) -> Expected {
        match self {
            Command::Read => Expected::data(offset, length),
            _ => Expected::no_data(),
        }
    }
}
