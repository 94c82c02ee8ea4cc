//! Replies as servers send them, and replies that no server may send.

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
        (chunk(1, 1, 1, &[0; 7]), Structured, ProtocolError::Length { what: "a chunk of data", bytes: 7 }),
        (chunk(1, 1, 2, &[0; 11]), Structured, ProtocolError::Length { what: "a hole", bytes: 11 }),
        (chunk(1, 1, 0x8001, &[0; 6]), Structured, ProtocolError::NoError),
        (chunk(1, 1, 0x8001, &[0; 5]), Structured, ProtocolError::Length { what: "an error", bytes: 5 }),
        (data(1, 0, OFFSET - 1, &[0; 4]), Structured, ProtocolError::Data { offset: OFFSET - 1, bytes: 4 }),
        (data(1, 0, OFFSET + 13, &[0; 4]), Structured, ProtocolError::Data { offset: OFFSET + 13, bytes: 4 }),
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

/// Mutated and random streams, the same in each run: a short form of the fuzz target.
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
