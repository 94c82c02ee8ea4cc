//! Replies: read from any source of bytes, checked against their requests.
//!
//! Nothing that a server sends is trusted. Lengths are checked before anything is read; data must
//! lie within the request and must not come twice; a reply counts as complete only when all of its
//! data has come. Memory is used only for the data of requests.

#[cfg(test)]
mod tests;

use crate::buffers;
use crate::wire::{
    CHUNK_BYTES, ChunkKind, ERROR_PAYLOAD_MAX, ProtocolError, ReplyHeader, SIMPLE_BYTES, be32, be64,
};
use std::io::{self, Read};

/// Most pieces of one reply's data: a page each of the largest request, and some more.
const PIECES_MAX: usize = 4096;

/// The reply that is expected to one request, and the part of it that has come.
#[derive(Debug)]
pub struct Expected {
    /// Offset of the request.
    offset: u64,
    /// The data of a read; empty for all other requests.
    data: Vec<u8>,
    /// The data that has come: ranges within it, in order, none touching the next.
    came: Vec<(u32, u32)>,
    /// The first error that came.
    error: Option<u32>,
}

impl Expected {
    /// The expected reply to a read.
    pub fn data(offset: u64, length: u32) -> Self {
        Expected { offset, data: buffers::take(length as usize), came: Vec::new(), error: None }
    }

    /// The expected reply to any other request.
    pub const fn no_data() -> Self {
        Expected { offset: 0, data: Vec::new(), came: Vec::new(), error: None }
    }

    /// Forgets the data that has come, because the request is sent again.
    pub fn again(&mut self) {
        self.came.clear();
        self.error = None;
    }

    /// The outcome of a complete reply: the data, or the server's error.
    ///
    /// # Errors
    /// [`ProtocolError::Incomplete`].
    pub fn finish(self) -> Result<Result<Vec<u8>, u32>, ProtocolError> {
        if let Some(error) = self.error {
            return Ok(Err(error));
        }
        let came: u32 = self.came.iter().map(|(start, end)| end - start).sum();
        match self.data.len() as u32 - came {
            0 => Ok(Ok(self.data)),
            missing => Err(ProtocolError::Incomplete { missing }),
        }
    }

    /// The error that has come, if any.
    pub const fn error(&self) -> Option<u32> {
        self.error
    }

    /// The position in the data of a range of the export that has not come before, and notes that
    /// it has come.
    fn claim(&mut self, offset: u64, bytes: u32) -> Result<usize, ProtocolError> {
        let wrong = ProtocolError::Data { offset, bytes };
        let start = offset.checked_sub(self.offset).ok_or(wrong)?;
        let end =
            start.checked_add(u64::from(bytes)).filter(|&end| end <= self.data.len() as u64).ok_or(wrong)?;
        let (start, end) = (start as u32, end as u32);
        let after = self.came.partition_point(|&(from, _)| from < start);
        let overlaps = bytes == 0
            || after.checked_sub(1).is_some_and(|before| self.came[before].1 > start)
            || self.came.get(after).is_some_and(|&(from, _)| from < end);
        if overlaps || self.came.len() >= PIECES_MAX {
            return Err(wrong);
        }
        let joins_before = after.checked_sub(1).is_some_and(|before| self.came[before].1 == start);
        let joins_after = self.came.get(after).is_some_and(|&(from, _)| from == end);
        match (joins_before, joins_after) {
            (true, true) => {
                self.came[after - 1].1 = self.came[after].1;
                self.came.remove(after);
            }
            (true, false) => self.came[after - 1].1 = end,
            (false, true) => self.came[after].0 = start,
            (false, false) => self.came.insert(after, (start, end)),
        }
        Ok(start as usize)
    }
}

/// The reason why reading a reply ended early.
#[derive(Debug, thiserror::Error)]
pub enum ReplyError {
    /// Nothing came within the socket's timeout, and nothing was read: the read can be repeated.
    #[error("nothing came")]
    Idle,
    /// The connection failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The server violates the protocol.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
}

/// The form of the replies of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyStyle {
    /// Always simple.
    Simple,
    /// Reads are answered in chunks, all other requests in either form.
    Structured,
}

/// The requests that wait for their replies.
pub trait Waiting {
    /// Lends the expected reply of a request, which comes back by [`Waiting::put_back`] or
    /// [`Waiting::done`]. `None`: there is no such request.
    fn lend(&mut self, cookie: u64) -> Option<Expected>;
    /// Returns an expected reply of which more is to come.
    fn put_back(&mut self, cookie: u64, expected: Expected);
    /// Returns an expected reply that is complete.
    fn done(&mut self, cookie: u64, expected: Expected);
}

/// Reads one reply, or one chunk of one. Blocks until it is there.
///
/// # Errors
/// [`ReplyError`]: the connection cannot be used any more. The expected reply was put back.
pub fn read_reply(
    source: &mut impl Read,
    style: ReplyStyle,
    waiting: &mut impl Waiting,
) -> Result<(), ReplyError> {
    let mut head = [0; SIMPLE_BYTES];
    read_head(source, &mut head)?;
    let header = ReplyHeader::decode(&head)?;
    let (ReplyHeader::Simple { cookie, .. } | ReplyHeader::Chunk { cookie, .. }) = header;
    let mut expected = waiting.lend(cookie).ok_or(ProtocolError::Cookie(cookie))?;
    let outcome = match header {
        ReplyHeader::Simple { error, .. } => read_simple(source, style, error, &mut expected).map(|()| true),
        ReplyHeader::Chunk { done, kind, .. } => {
            read_chunk(source, style, kind, &mut expected).map(|()| done)
        }
    };
    match outcome {
        Ok(true) => waiting.done(cookie, expected),
        Ok(false) | Err(_) => waiting.put_back(cookie, expected),
    }
    outcome.map(|_| ())
}

fn read_head(source: &mut impl Read, head: &mut [u8; SIMPLE_BYTES]) -> Result<(), ReplyError> {
    let mut read = 0;
    while read < head.len() {
        match source.read(&mut head[read..]) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(count) => read += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                let is_patience = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
                return Err(if is_patience && read == 0 { ReplyError::Idle } else { error.into() });
            }
        }
    }
    Ok(())
}

fn read_simple(
    source: &mut impl Read,
    style: ReplyStyle,
    error: u32,
    expected: &mut Expected,
) -> Result<(), ReplyError> {
    if error != 0 {
        expected.error = Some(error);
        return Ok(());
    }
    if expected.data.is_empty() {
        return Ok(());
    }
    if style == ReplyStyle::Structured {
        return Err(ProtocolError::Style.into());
    }
    let length = expected.data.len() as u32;
    expected.claim(expected.offset, length)?;
    source.read_exact(&mut expected.data)?;
    Ok(())
}

fn read_chunk(
    source: &mut impl Read,
    style: ReplyStyle,
    kind: u16,
    expected: &mut Expected,
) -> Result<(), ReplyError> {
    if style == ReplyStyle::Simple {
        return Err(ProtocolError::Style.into());
    }
    let kind = ChunkKind::from_number(kind)?;
    let mut length = [0; CHUNK_BYTES - SIMPLE_BYTES];
    source.read_exact(&mut length)?;
    let length = be32(&length);
    let wrong = |what| ReplyError::from(ProtocolError::Length { what, bytes: length });
    match kind {
        ChunkKind::None if length == 0 => {}
        ChunkKind::None => return Err(wrong("a chunk without contents")),
        ChunkKind::Data => {
            let bytes = length.checked_sub(8).ok_or_else(|| wrong("a chunk of data"))?;
            let mut offset = [0; 8];
            source.read_exact(&mut offset)?;
            let start = expected.claim(be64(&offset), bytes)?;
            source.read_exact(&mut expected.data[start..start + bytes as usize])?;
        }
        ChunkKind::Hole if length == 12 => {
            let mut hole = [0; 12];
            source.read_exact(&mut hole)?;
            let bytes = be32(&hole[8..]);
            let start = expected.claim(be64(&hole), bytes)?;
            expected.data[start..start + bytes as usize].fill(0);
        }
        ChunkKind::Hole => return Err(wrong("a hole")),
        ChunkKind::Error => {
            if !(6..=ERROR_PAYLOAD_MAX).contains(&length) {
                return Err(wrong("an error"));
            }
            let mut payload = vec![0; length as usize];
            source.read_exact(&mut payload)?;
            let error = be32(&payload);
            if error == 0 {
                return Err(ProtocolError::NoError.into());
            }
            expected.error.get_or_insert(error);
        }
    }
    Ok(())
}

/// For fuzzing: reads replies until an error, with a few requests under way. Returns the most bytes
/// held in memory.
///
/// Panics when a guarantee (memory, bounds) is violated.
pub fn read_all(bytes: &[u8], style: ReplyStyle, requests: &[(u64, u32)]) -> usize {
    struct Table(std::collections::BTreeMap<u64, Expected>);
    impl Waiting for Table {
        fn lend(&mut self, cookie: u64) -> Option<Expected> {
            self.0.remove(&cookie)
        }
        fn put_back(&mut self, cookie: u64, expected: Expected) {
            self.0.insert(cookie, expected);
        }
        fn done(&mut self, _: u64, expected: Expected) {
            let asked = expected.data.len();
            if let Ok(Ok(data)) = expected.finish() {
                assert_eq!(data.len(), asked);
            }
        }
    }
    let expected = |&(offset, length): &(u64, u32)| match length {
        0 => Expected::no_data(),
        length => Expected::data(offset, length),
    };
    let mut table = Table((1..).zip(requests.iter().map(expected)).collect());
    let mut source = bytes;
    let mut most = 0;
    while read_reply(&mut source, style, &mut table).is_ok() {
        let held: usize =
            table.0.values().map(|expected| expected.data.capacity() + expected.came.capacity() * 8).sum();
        most = most.max(held);
        assert!(table.0.values().all(|expected| expected.came.len() <= PIECES_MAX));
    }
    most
}
