//! Replies: read from any source of bytes, checked against what was asked for.
//!
//! Nothing of a server is believed: lengths are checked before anything is read, data must lie within the request, must not come
//! twice, and all of it must have come before the reply counts as done. Memory is only what the request has.

use crate::wire::{
    CHUNK_BYTES, ChunkKind, ERROR_PAYLOAD_MAX, ProtocolError, ReplyHeader, SIMPLE_BYTES, be32, be64,
};
use std::io::{self, Read};

/// Pieces of one reply's data, at most: a page each of the largest request, and some.
const PIECES_MAX: usize = 4096;

/// What is expected of the reply to one request, and what has come of it.
#[derive(Debug)]
pub struct Expected {
    /// Where the request began.
    offset: u64,
    /// The data of a read; empty for all others.
    data: Vec<u8>,
    /// What of the data has come: ranges within it, in order, none touching the next.
    came: Vec<(u32, u32)>,
    /// The first error that came.
    error: Option<u32>,
}

impl Expected {
    /// Of a read.
    pub fn data(offset: u64, length: u32) -> Self {
        Expected { offset, data: vec![0; length as usize], came: Vec::new(), error: None }
    }

    /// Of anything else.
    pub const fn no_data() -> Self {
        Expected { offset: 0, data: Vec::new(), came: Vec::new(), error: None }
    }

    /// Forgets what has come: the request is sent once more.
    pub fn again(&mut self) {
        self.came.clear();
        self.error = None;
    }

    /// What it has come to: the data, or the server's error.
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

    /// A range of the export within the data, which has not come before.
    fn place(&mut self, offset: u64, bytes: u32) -> Result<usize, ProtocolError> {
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

/// Why reading a reply ended early.
#[derive(Debug, thiserror::Error)]
pub enum ReplyError {
    /// Nothing came within the connection's patience, and nothing was read: it can be tried again.
    #[error("nothing came")]
    Idle,
    /// The connection failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The server does not keep to the protocol.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
}

/// How replies of this connection look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyStyle {
    /// Always simple.
    Simple,
    /// Reads are answered in chunks, everything else either way.
    Structured,
}

/// Where requests wait for their replies.
pub trait Waiting {
    /// Lends what is expected of this request; it comes back by [`Waiting::put_back`] or [`Waiting::done`]. `None`: there is no
    /// such request.
    fn lend(&mut self, cookie: u64) -> Option<Expected>;
    /// More is to come.
    fn put_back(&mut self, cookie: u64, expected: Expected);
    /// All has come.
    fn done(&mut self, cookie: u64, expected: Expected);
}

/// Reads one reply, or one chunk of one. Blocks until it is there.
///
/// # Errors
/// [`ReplyError`]: the connection is of no use any more. What was lent is given back.
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
    expected.place(expected.offset, length)?;
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
            let start = expected.place(be64(&offset), bytes)?;
            source.read_exact(&mut expected.data[start..start + bytes as usize])?;
        }
        ChunkKind::Hole if length == 12 => {
            let mut hole = [0; 12];
            source.read_exact(&mut hole)?;
            let bytes = be32(&hole[8..]);
            let start = expected.place(be64(&hole), bytes)?;
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

/// For fuzzing: reads replies until something ends it, with a few requests under way. Returns what was held in memory at most, in bytes.
///
/// A violation of what is promised (memory, bounds) panics.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{MAGIC_CHUNK, MAGIC_SIMPLE};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const OFFSET: u64 = 1 << 20;

    type Finished = Result<Result<Vec<u8>, u32>, ProtocolError>;

    #[derive(Default)]
    struct Table {
        waiting: BTreeMap<u64, Expected>,
        done: Vec<(u64, Finished)>,
    }
    impl Waiting for Table {
        fn lend(&mut self, cookie: u64) -> Option<Expected> {
            self.waiting.remove(&cookie)
        }
        fn put_back(&mut self, cookie: u64, expected: Expected) {
            self.waiting.insert(cookie, expected);
        }
        fn done(&mut self, cookie: u64, expected: Expected) {
            self.done.push((cookie, expected.finish()));
        }
    }

    fn chunk(cookie: u64, done: u16, kind: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = MAGIC_CHUNK.to_be_bytes().to_vec();
        bytes.extend(done.to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        bytes.extend(cookie.to_be_bytes());
        bytes.extend((payload.len() as u32).to_be_bytes());
        bytes.extend(payload);
        bytes
    }
    fn data(cookie: u64, done: u16, offset: u64, data: &[u8]) -> Vec<u8> {
        chunk(cookie, done, 1, &[&offset.to_be_bytes()[..], data].concat())
    }
    fn hole(cookie: u64, done: u16, offset: u64, bytes: u32) -> Vec<u8> {
        chunk(cookie, done, 2, &[&offset.to_be_bytes()[..], &bytes.to_be_bytes()].concat())
    }
    fn simple(cookie: u64, error: u32, data: &[u8]) -> Vec<u8> {
        let head = [&MAGIC_SIMPLE.to_be_bytes()[..], &error.to_be_bytes(), &cookie.to_be_bytes()].concat();
        [&head, data].concat()
    }

    fn run(bytes: &[u8], style: ReplyStyle) -> (Table, ReplyError) {
        let mut table = Table::default();
        for cookie in 1..=3 {
            table.waiting.insert(cookie, Expected::data(OFFSET, 16));
        }
        table.waiting.insert(4, Expected::no_data());
        let mut source = bytes;
        loop {
            if let Err(error) = read_reply(&mut source, style, &mut table) {
                return (table, error);
            }
        }
    }

    fn is_end(error: &ReplyError) -> bool {
        matches!(error, ReplyError::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof)
    }

    #[test]
    fn chunks_of_several_replies_come_in_any_order() {
        let bytes = [
            data(2, 0, OFFSET + 8, &[2; 8]),
            hole(1, 0, OFFSET, 16),
            simple(4, 0, &[]),
            data(2, 0, OFFSET, &[1; 8]),
            chunk(1, 1, 0, &[]),
            chunk(2, 1, 0, &[]),
            chunk(3, 1, 0x8001, &[0, 0, 0, 5, 0, 2, b'n', b'o']),
        ];
        let (table, error) = run(&bytes.concat(), ReplyStyle::Structured);
        assert!(is_end(&error), "{error}");
        let mut two = vec![1; 8];
        two.extend([2; 8]);
        assert_eq!(
            table.done,
            [(4, Ok(Ok(vec![]))), (1, Ok(Ok(vec![0; 16]))), (2, Ok(Ok(two))), (3, Ok(Err(5))),]
        );
    }

    #[test]
    fn an_error_in_the_middle_spoils_the_reply() {
        let bytes =
            [data(1, 0, OFFSET, &[1; 8]), chunk(1, 1, 0x8002, &[0, 0, 0, 28, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8])];
        let (table, _) = run(&bytes.concat(), ReplyStyle::Structured);
        assert_eq!(table.done, [(1, Ok(Err(28)))]);
    }

    #[test]
    fn simple_replies_have_data_or_an_error() {
        let bytes = [simple(1, 0, &[7; 16]), simple(2, 5, &[]), simple(4, 0, &[])].concat();
        let (table, error) = run(&bytes, ReplyStyle::Simple);
        assert!(is_end(&error));
        assert_eq!(table.done, [(1, Ok(Ok(vec![7; 16]))), (2, Ok(Err(5))), (4, Ok(Ok(vec![])))]);
    }

    #[test]
    fn what_no_server_may_say_ends_the_connection() {
        use ReplyStyle::{Simple, Structured};
        for (bytes, style, expected) in [
            (simple(9, 0, &[]), Simple, ProtocolError::Cookie(9)),
            (simple(1, 0, &[0; 16]), Structured, ProtocolError::Style),
            (chunk(1, 1, 0, &[]), Simple, ProtocolError::Style),
            (vec![0; 16], Simple, ProtocolError::Magic(0)),
            (chunk(1, 1, 5, &[0; 8]), Structured, ProtocolError::Chunk(5)),
            (
                chunk(1, 1, 0, &[0]),
                Structured,
                ProtocolError::Length { what: "a chunk without contents", bytes: 1 },
            ),
            (
                chunk(1, 1, 1, &[0; 7]),
                Structured,
                ProtocolError::Length { what: "a chunk of data", bytes: 7 },
            ),
            (chunk(1, 1, 2, &[0; 11]), Structured, ProtocolError::Length { what: "a hole", bytes: 11 }),
            (chunk(1, 1, 0x8001, &[0; 6]), Structured, ProtocolError::NoError),
            (chunk(1, 1, 0x8001, &[0; 5]), Structured, ProtocolError::Length { what: "an error", bytes: 5 }),
            (
                data(1, 0, OFFSET - 1, &[0; 4]),
                Structured,
                ProtocolError::Data { offset: OFFSET - 1, bytes: 4 },
            ),
            (
                data(1, 0, OFFSET + 13, &[0; 4]),
                Structured,
                ProtocolError::Data { offset: OFFSET + 13, bytes: 4 },
            ),
            (data(1, 0, OFFSET, &[]), Structured, ProtocolError::Data { offset: OFFSET, bytes: 0 }),
            (hole(1, 0, u64::MAX, 2), Structured, ProtocolError::Data { offset: u64::MAX, bytes: 2 }),
            (data(4, 0, 0, &[1]), Structured, ProtocolError::Data { offset: 0, bytes: 1 }),
            (
                [data(1, 0, OFFSET, &[0; 8]), data(1, 0, OFFSET + 7, &[0; 2])].concat(),
                Structured,
                ProtocolError::Data { offset: OFFSET + 7, bytes: 2 },
            ),
        ] {
            let (table, error) = run(&bytes, style);
            let ReplyError::Protocol(found) = error else { panic!("{error} for {expected:?}") };
            assert_eq!((found, table.done.len()), (expected, 0));
        }
    }

    #[test]
    fn a_reply_without_all_of_its_data_is_none() {
        let (table, _) = run(&data(1, 1, OFFSET, &[0; 12]), ReplyStyle::Structured);
        assert_eq!(table.done, [(1, Err(ProtocolError::Incomplete { missing: 4 }))]);
    }

    #[test]
    fn what_breaks_off_is_given_back() {
        let bytes = data(1, 1, OFFSET, &[3; 16]);
        let (table, error) = run(&bytes[..bytes.len() - 1], ReplyStyle::Structured);
        assert!(is_end(&error));
        let mut again = table.waiting.into_iter().next().expect("it").1;
        again.again();
        assert!(again.came.is_empty());
    }

    /// Mutated and random streams, the same in each run: what the fuzz target does, for a moment.
    #[test]
    fn no_stream_makes_it_panic_or_grow() {
        let requests = [(OFFSET, 64), (0, 4096), (u64::MAX - 8, 8), (0, 0)];
        let good = [
            data(1, 0, OFFSET, &[5; 32]),
            hole(1, 1, OFFSET + 32, 32),
            simple(4, 0, &[]),
            chunk(2, 1, 0x8001, &[0, 0, 0, 5, 0, 0]),
            data(3, 1, u64::MAX - 8, &[1; 8]),
        ]
        .concat();
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        for _ in 0..60_000 {
            let mut bytes = good.clone();
            for _ in 0..next() % 6 {
                let at = (next() % bytes.len() as u64) as usize;
                bytes[at] = next() as u8;
            }
            bytes.truncate((next() % (bytes.len() as u64 + 1)) as usize);
            for style in [ReplyStyle::Simple, ReplyStyle::Structured] {
                assert!(read_all(&bytes, style, &requests) < 64 << 10);
            }
        }
    }

    proptest! {
        #[test]
        fn pieces_in_any_order_come_to_the_whole(
            cuts in proptest::collection::vec(1_u32..200, 1..12), seed in any::<u64>()
        ) {
            let length: u32 = cuts.iter().sum();
            let whole: Vec<u8> = (0..length).map(|index| (index * 7 + 1) as u8).collect();
            let mut pieces = Vec::new();
            let mut start = 0;
            for cut in cuts {
                pieces.push((start, cut));
                start += cut;
            }
            let mut random = seed | 1;
            for index in (1..pieces.len()).rev() {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                pieces.swap(index, (random >> 33) as usize % (index + 1));
            }
            let mut bytes = Vec::new();
            for (start, cut) in pieces {
                let range = start as usize..(start + cut) as usize;
                bytes.extend(data(1, 0, OFFSET + u64::from(start), &whole[range]));
            }
            bytes.extend(chunk(1, 1, 0, &[]));
            let mut table = Table::default();
            table.waiting.insert(1, Expected::data(OFFSET, length));
            let mut source = &bytes[..];
            while read_reply(&mut source, ReplyStyle::Structured, &mut table).is_ok() {}
            prop_assert_eq!(&table.done, &[(1, Ok(Ok(whole)))]);
        }
    }
}
