//! The throughput of pages to an export and back: by the client alone, as swap does it, and the
//! cost of encryption.
//!
//! `cargo bench -p folioswap-nbd --bench throughput -- URI [SECONDS]`: the export must be empty and
//! have 512 MiB. Without a URI only the ciphers are measured. Buffers are reused, as fio and the
//! links of members do. The output has one line for each size of a request and number of them under
//! way.

use folioswap_group::units::PAGE_SIZE;
use folioswap_nbd::buffers;
use folioswap_nbd::client::{Operation, Settings};
use folioswap_nbd::error::RequestError;
use folioswap_nbd::seal::Sealer;
use folioswap_nbd::store::{Encryption, FIRST, Prepared, plain_client};
use folioswap_nbd::uri::Uri;
use folioswap_nbd::wire::Command;
use ring::aead::{AES_256_GCM, CHACHA20_POLY1305};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const BYTES: u64 = 256 << 20;
const SHAPES: [(u64, u64); 6] = [(4096, 1), (4096, 32), (65536, 1), (65536, 8), (65536, 32), (262_144, 8)];

fn ciphers() {
    for (name, cipher) in [("AES-256-GCM", &AES_256_GCM), ("ChaCha20-Poly1305", &CHACHA20_POLY1305)] {
        let sealer = Sealer::with_cipher(cipher).expect("locked memory");
        let mut page = vec![0x5a; PAGE_SIZE];
        let rounds = 100_000;
        let began = Instant::now();
        for slot in 0..rounds {
            std::hint::black_box(sealer.seal(slot, &mut page));
        }
        let sealing = began.elapsed();
        let seal = sealer.seal(0, &mut page);
        let sealed = page.clone();
        let began = Instant::now();
        for _ in 0..rounds {
            page.copy_from_slice(&sealed);
            sealer.open(0, &seal, &mut page).expect("authentic");
        }
        let opening = began.elapsed();
        let each = |time: Duration| time.as_nanos() as u64 / rounds;
        println!("{name}: {} ns to seal a page, {} ns to open one", each(sealing), each(opening));
    }
}

/// Makes a request at an offset, and calls the completion when it has ended.
type Make<'m> = dyn Fn(u64, u64, Box<dyn FnOnce(Result<Vec<u8>, RequestError>) + Send>) + 'm;

/// MB/s of consecutive requests over the whole range, `depth` of them under way.
fn measure(make: &Make<'_>, size: u64, depth: u64, time: Duration) -> f64 {
    let (sender, receiver) = mpsc::channel();
    let (mut at, mut done) = (0, 0_u64);
    let mut next = || {
        let sender = sender.clone();
        make(
            at,
            size,
            Box::new(move |result| {
                let _ = sender.send(result.is_ok());
                result.into_iter().for_each(buffers::give_back);
            }),
        );
        at = (at + size) % BYTES;
    };
    let began = Instant::now();
    (0..depth).for_each(|_| next());
    while began.elapsed() < time {
        assert!(receiver.recv().expect("an answer"), "a request failed");
        done += size;
        next();
    }
    let rate = done as f64 / began.elapsed().as_secs_f64() / 1e6;
    for _ in 0..depth {
        let _ = receiver.recv();
    }
    rate
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    ciphers();
    let Some(uri) = words.first() else { return };
    let uri = Uri::parse(uri).expect("a URI");
    let time = Duration::from_secs_f64(words.get(1).map_or(1.0, |word| word.parse().expect("seconds")));
    println!("{:>8} {:>6} {:<22} {:>11} {:>11}", "request", "depth", "by", "write MB/s", "read MB/s");
    for (size, depth) in SHAPES {
        let row = |by: &str, write: f64, read: f64| {
            println!("{:>7}K {depth:>6} {by:<22} {write:>11.0} {read:>11.0}", size >> 10);
        };
        for connections in [1, 4] {
            let client =
                plain_client(&uri, Settings { connections, ..Settings::default() }).expect("connected");
            std::thread::sleep(Duration::from_millis(100));
            let request = |command, offset, length, done| {
                let data = if command == Command::Write { buffers::take(length as usize) } else { vec![] };
                let length = length as u32;
                client.submit(Operation { command, flags: 0, offset: FIRST + offset, length, data }, done);
            };
            let write =
                measure(&|at, length, done| request(Command::Write, at, length, done), size, depth, time);
            let read =
                measure(&|at, length, done| request(Command::Read, at, length, done), size, depth, time);
            row(&format!("client, {connections} connection(s)"), write, read);
        }
        for (name, encryption) in [("pages", Encryption::None), ("pages, encrypted", Encryption::Random)] {
            let prepared = Prepared::new(uri.clone(), encryption, Settings::default()).expect("prepared");
            let store = prepared.start().expect("a key");
            std::thread::sleep(Duration::from_millis(100));
            let page = PAGE_SIZE as u64;
            let write =
                |at: u64, length: u64, done| store.write(at / page, buffers::take(length as usize), done);
            let written = measure(&write, size, depth, time);
            // The whole range was written before it is read.
            let filled = (0..BYTES / 262_144).all(|index| {
                let (sender, receiver) = mpsc::channel();
                store.write(
                    index * 64,
                    vec![0x5a; 262_144],
                    Box::new(move |result| drop(sender.send(result))),
                );
                receiver.recv().expect("an answer").is_ok()
            });
            assert!(filled);
            let read = |at: u64, length: u64, done| store.read(at / page, length / page, done);
            row(name, written, measure(&read, size, depth, time));
            store.finish(Duration::from_secs(1));
        }
    }
}
