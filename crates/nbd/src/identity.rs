//! The mark by which an export is known again.
//!
//! The first block of an export in use carries a random number, drawn for this run, and a count that grows every second. Whatever
//! answers after a connection was lost must show this number, and a count no lower than the last one that was confirmed: an empty
//! export, another one, or an older copy cannot. An export whose count grows while one looks is in use by another run. At the end the
//! mark is erased; one that does not grow was left behind by a run that was killed, and its export is taken over.
//!
//! Of two runs that find an export free at the same time, the last to write its mark has it: each looks again when the other must have
//! written (Fischer's mutual exclusion). Before each count the mark is read, so that a run which was stopped while another took its
//! export over gives it up.

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
/// Bytes at the beginning of an export that are empty or it is somebody's: file systems, partition tables, volume managers and
/// swap have their labels there.
const LOOKED_AT: u32 = 256 << 10;
/// Between two counts.
pub const BEAT: Duration = Duration::from_secs(1);
/// After so long without a new count nobody is there.
const SILENCE: Duration = Duration::from_millis(2500);
/// Whoever found an export free writes its mark within this time, or waits for [`SILENCE`] before it looks again.
const SETTLED: Duration = Duration::from_millis(200);
const MAGIC: &[u8; 16] = b"folioswap nbd 1\n";

/// The marks of this process: one export may have two names.
static OURS: Mutex<Vec<[u8; 16]>> = Mutex::new(Vec::new());

/// What stands in the block.
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

/// Our mark on an export.
#[derive(Debug)]
pub struct Mark {
    id: [u8; 16],
    /// The count that the server has confirmed, and the one that was sent last.
    confirmed: AtomicU64,
    sent: AtomicU64,
}

impl Mark {
    /// Makes sure that the export is nobody's, and marks it. Takes 0.2 s, and 2.5 s more where a run was killed that had it.
    ///
    /// # Errors
    /// [`ConnectError::Foreign`], [`ConnectError::Twice`]: nothing was written. [`ConnectError::InUse`]: nor was it, or another run wrote
    /// its mark at the same time and has the export. [`ConnectError::ReadOnly`]. Others of the connection.
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
        let mark = Mark { id, confirmed: AtomicU64::new(1), sent: AtomicU64::new(1) };
        let written = Contents { id, count: 1 };
        let request = Request { flags: 0, command: Command::Write, cookie: 1, offset: 0, length: BLOCK };
        ask(session, request, &written.encode())?;
        // Who looked before we wrote has written by now too. Whoever was slow may have taken an export that another run had made sure of:
        // that one gives it up at its next count.
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

    /// Counts on. One at a time; waits for the server. If another mark stands there the client gives the export up for good.
    ///
    /// # Errors
    /// The request's; [`RequestError::Replaced`].
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

    /// Takes the mark off, if it is ours.
    ///
    /// # Errors
    /// The request's.
    pub fn erase(&self, client: &Client) -> Result<(), RequestError> {
        if Contents::decode(&client.read(0, BLOCK)?).is_none_or(|found| found.id != self.id) {
            return Err(RequestError::Replaced(Replaced::Mark));
        }
        client.write(0, vec![0; BLOCK as usize], 0)
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        ours().retain(|id| *id != self.id);
    }
}

fn ours() -> MutexGuard<'static, Vec<[u8; 16]>> {
    OURS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Known for Mark {
    fn verify(&self, session: &mut Session) -> Result<(), ConnectError> {
        // Before the look, since it may grow meanwhile.
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

/// The answer to a request, which is sent again a few times where the server reports an error.
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
