//! The mark by which an export is recognised.
//!
//! The first block of an export in use carries a random number, drawn for this run, and a count
//! that grows every second. After a lost connection the server must show this number, and a count
//! no lower than the last one that was confirmed; an empty export, another one, or an older copy
//! cannot. An export whose count grows while it is watched is in use by another run. At the end the
//! mark is erased. A mark that does not grow was left behind by a run that was killed, and its
//! export is taken over.
//!
//! Of two runs that find an export free at the same time, the last one to write its mark has it:
//! each looks again after the other must have written (Fischer's mutual exclusion). Each count
//! first reads the mark, so that a run which was stopped while another took its export over gives
//! the export up.

use crate::client::{Client, Known};
use crate::error::{ConnectError, Replaced, RequestError};
use crate::session::Session;
use crate::wire::{Command, ExportFlags, Request};
use ring::digest::{SHA256, digest};
use rustix::rand::{GetRandomFlags, getrandom};
use std::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire},
};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of the mark's block.
pub const BLOCK: u32 = 4096;
/// Bytes at the beginning of an export that must be empty, or the export is in use: file systems,
/// partition tables, volume managers and swap have their labels there.
const LOOKED_AT: u32 = 256 << 10;
/// Time between two counts.
pub const BEAT: Duration = Duration::from_secs(1);
/// A mark without a new count for this long belongs to no running process.
const SILENCE: Duration = Duration::from_millis(2500);
/// A run that found an export free writes its mark within this time, or waits for [`SILENCE`]
/// before it looks again.
const SETTLED: Duration = Duration::from_millis(200);
const MAGIC: &[u8; 16] = b"folioswap nbd 1\n";

/// The marks of this process, because one export may have two names.
static OURS: Mutex<Vec<[u8; 16]>> = Mutex::new(Vec::new());

/// The contents of the mark's block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Contents {
    id: [u8; 16],
    count: u64,
}

impl Contents {
    fn encode(&self) -> Vec<u8> {
        let mut block = vec![0; BLOCK as usize];
        block[..16].copy_from_slice(MAGIC);
        block[16..32].copy_from_slice(&self.id);
        block[32..40].copy_from_slice(&self.count.to_le_bytes());
        let check = digest(&SHA256, &block[..40]);
        block[40..72].copy_from_slice(check.as_ref());
        block
    }

    fn decode(block: &[u8]) -> Option<Self> {
        let is_ours = block.len() >= 72
            && &block[..16] == MAGIC
            && digest(&SHA256, &block[..40]).as_ref() == &block[40..72]
            && block[72..BLOCK as usize].iter().all(|&byte| byte == 0);
        if !is_ours {
            return None;
        }
        let (mut id, mut count) = ([0; 16], [0; 8]);
        id.copy_from_slice(&block[16..32]);
        count.copy_from_slice(&block[32..40]);
        Some(Contents { id, count: u64::from_le_bytes(count) })
    }
}

/// The mark of this run on an export.
#[derive(Debug)]
pub struct ExportMark {
    id: [u8; 16],
    /// The last count that the server has confirmed, and the last one that was sent.
    confirmed: AtomicU64,
    sent: AtomicU64,
}

impl ExportMark {
    /// Makes sure that the export is not in use, and marks it. Takes 0.2 s, and 2.5 s more where a
    /// run that was killed has left its mark.
    ///
    /// # Errors
    /// [`ConnectError::Foreign`], [`ConnectError::Twice`]: nothing was written.
    /// [`ConnectError::InUse`]: nothing was written either, or another run wrote its mark at the
    /// same time and has the export. [`ConnectError::ReadOnly`]. Others are those of the
    /// connection.
    pub fn take(session: &mut Session) -> Result<Self, ConnectError> {
        if session.agreed.flags.has(ExportFlags::READ_ONLY) {
            return Err(ConnectError::ReadOnly);
        }
        let mut looked = Instant::now();
        let beginning = read(session, LOOKED_AT)?;
        if let Some(found) = Contents::decode(&beginning) {
            if ours().contains(&found.id) {
                return Err(ConnectError::Twice);
            }
            thread::sleep(SILENCE);
            looked = Instant::now();
            if Contents::decode(&read(session, BLOCK)?) != Some(found) {
                return Err(ConnectError::InUse);
            }
        } else if beginning.iter().any(|&byte| byte != 0) {
            return Err(ConnectError::Foreign);
        }
        let mut id = [0; 16];
        getrandom(&mut id, GetRandomFlags::empty()).map_err(|errno| ConnectError::Broken(errno.into()))?;
        ours().push(id);
        let mark = ExportMark { id, confirmed: AtomicU64::new(1), sent: AtomicU64::new(1) };
        let written = Contents { id, count: 1 };
        let request = Request { flags: 0, command: Command::Write, cookie: 1, offset: 0, length: BLOCK };
        ask(session, request, &written.encode())?;
        // A run that looked before this one wrote has written by now too. A run that was slow may
        // have overwritten the mark of another run that was already sure of the export; that one
        // gives it up at its next count.
        let was_slow = looked.elapsed() >= SETTLED;
        thread::sleep(if was_slow { SILENCE } else { SETTLED });
        if Contents::decode(&read(session, BLOCK)?) != Some(written) {
            return Err(ConnectError::InUse);
        }
        Ok(mark)
    }

    /// The random number.
    pub const fn id(&self) -> [u8; 16] {
        self.id
    }

    /// Writes the next count. One call at a time; waits for the server. If another mark stands
    /// there, the client gives the export up for good.
    ///
    /// # Errors
    /// Those of the requests; [`RequestError::Replaced`].
    pub fn beat(&self, client: &Client) -> Result<(), RequestError> {
        if Contents::decode(&client.read(0, BLOCK)?).is_none_or(|found| found.id != self.id) {
            client.give_up(Replaced::Mark);
            return Err(RequestError::Replaced(Replaced::Mark));
        }
        let count = self.sent.fetch_add(1, AcqRel) + 1;
        client.write(0, Contents { id: self.id, count }.encode(), 0)?;
        self.confirmed.fetch_max(count, AcqRel);
        Ok(())
    }

    /// Erases the mark, if it is this run's.
    ///
    /// # Errors
    /// Those of the requests.
    pub fn erase(&self, client: &Client) -> Result<(), RequestError> {
        if Contents::decode(&client.read(0, BLOCK)?).is_none_or(|found| found.id != self.id) {
            return Err(RequestError::Replaced(Replaced::Mark));
        }
        client.write(0, vec![0; BLOCK as usize], 0)
    }
}

impl Drop for ExportMark {
    fn drop(&mut self) {
        ours().retain(|id| *id != self.id);
    }
}

fn ours() -> MutexGuard<'static, Vec<[u8; 16]>> {
    OURS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Known for ExportMark {
    fn verify(&self, session: &mut Session) -> Result<(), ConnectError> {
        // The count is loaded before the block is read, because it may grow meanwhile.
        let before = self.confirmed.load(Acquire);
        let found = Contents::decode(&read(session, BLOCK)?).filter(|found| found.id == self.id);
        match found {
            None => Err(ConnectError::Replaced(Replaced::Mark)),
            Some(found) if found.count < before => {
                Err(ConnectError::Replaced(Replaced::Older { before, now: found.count }))
            }
            Some(_) => Ok(()),
        }
    }
}

fn read(session: &mut Session, length: u32) -> Result<Vec<u8>, ConnectError> {
    ask(session, Request { flags: 0, command: Command::Read, cookie: 2, offset: 0, length }, &[])
}

/// The answer to a request, which is repeated a few times where the server reports an error.
fn ask(session: &mut Session, request: Request, data: &[u8]) -> Result<Vec<u8>, ConnectError> {
    let mut attempts = 0;
    loop {
        match session.request(request, data)? {
            Ok(data) => return Ok(data),
            Err(error) if attempts >= 4 => return Err(RequestError::Server(error).into()),
            Err(_) => attempts += 1,
        }
    }
}

#[cfg(test)]
mod tests;
