//! The client against real servers: data written is read back, whatever the server is and does.

mod common;

use common::{Daemon, Server, TestDir, certificates, has, until};
use folioswap_nbd::client::{Client, Operation, Settings};
use folioswap_nbd::error::{ConnectError, RequestError};
use folioswap_nbd::store::plain_client;
use folioswap_nbd::uri::Uri;
use folioswap_nbd::wire::{Command, ExportFlags, command_flags};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;

fn connect(dir: &TestDir, settings: Settings) -> Client {
    plain_client(&dir.uri(""), settings).expect("connected")
}

/// Random operations on blocks, many at a time, against a plain copy. The copy changes when an
/// operation is made, because no two operations under way overlap.
fn exercise(client: &Client, rounds: u64) {
    let blocks = 256_u64;
    let mut copy = vec![0_u8; (blocks * BLOCK) as usize];
    client.write_zeroes(0, copy.len() as u32).or_else(|_| client.write(0, copy.clone(), 0)).expect("zeroed");
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let flags = client.agreed().flags;
    for round in 0..rounds {
        let (sender, receiver) = mpsc::channel();
        let (mut at, mut made) = (0, 0);
        while at < blocks {
            let count = (1 + next() % 24).min(blocks - at);
            let (offset, length) = (at * BLOCK, (count * BLOCK) as u32);
            at += count;
            let range = offset as usize..offset as usize + length as usize;
            let fua = if next() % 8 == 0 && flags.has(ExportFlags::FUA) { command_flags::FUA } else { 0 };
            let operation = |command, flags, data| Operation { command, flags, offset, length, data };
            let (operation, expected) = match next() % 8 {
                0..3 => {
                    let filled = next().to_le_bytes().repeat(length as usize / 8);
                    copy[range].copy_from_slice(&filled);
                    (operation(Command::Write, fua, filled), None)
                }
                3 if flags.has(ExportFlags::WRITE_ZEROES) => {
                    copy[range].fill(0);
                    (operation(Command::WriteZeroes, fua, vec![]), None)
                }
                _ => (operation(Command::Read, 0, vec![]), Some(copy[range].to_vec())),
            };
            let sender = sender.clone();
            let what = format!("{:?} with flags {} at {offset}", operation.command, operation.flags);
            made += 1;
            client.submit(operation, Box::new(move |result| drop(sender.send((what, result, expected)))));
        }
        for _ in 0..made {
            let (what, result, expected) = receiver.recv_timeout(Duration::from_secs(20)).expect("an answer");
            let data = result.unwrap_or_else(|error| panic!("round {round}, {what}: {error}"));
            assert!(expected.is_none_or(|expected| expected == data), "round {round}, {what}");
        }
    }
    if flags.has(ExportFlags::FLUSH) {
        client.flush().expect("flushed");
    }
    if flags.has(ExportFlags::TRIM) {
        client.trim(0, BLOCK as u32).expect("trimmed");
    }
    let whole = client.read(BLOCK, (copy.len() as u64 - BLOCK) as u32).expect("read");
    assert!(whole == copy[BLOCK as usize..]);
}

/// Reads of 64 KiB and of a page in turn, sixteen under way at any time.
fn read_many(client: &Client) {
    let filled = |offset: u64| vec![(offset >> 16) as u8 | 1; 64 << 10];
    for offset in (0..16).map(|index| index << 16) {
        client.write(offset, filled(offset), 0).expect("written");
    }
    for _ in 0..20 {
        let (sender, receiver) = mpsc::channel();
        for index in 0..32_u64 {
            let (offset, length) = ((index / 2) << 16, if index % 2 == 0 { 64 << 10 } else { 4096 });
            let operation = Operation { command: Command::Read, flags: 0, offset, length, data: vec![] };
            let sender = sender.clone();
            client.submit(operation, Box::new(move |result| drop(sender.send((offset, length, result)))));
        }
        for _ in 0..32 {
            let (offset, length, result) = receiver.recv().expect("an answer");
            assert!(result.expect("read") == filled(offset)[..length as usize], "at {offset}");
        }
    }
}

#[test]
fn nbdkit_with_memory_and_with_a_file() {
    if !has("nbdkit") {
        return;
    }
    for words in [["memory", "64M"], ["file", "disk"]] {
        let dir = TestDir::new();
        let disk = dir.disk(64 * MIB).display().to_string();
        let words: Vec<&str> = words.iter().map(|&word| if word == "disk" { &disk } else { word }).collect();
        let _server = Server::nbdkit(&dir, &words);
        let client = connect(&dir, Settings::default());
        assert_eq!(client.agreed().size, 64 * MIB);
        assert!(client.agreed().flags.has(ExportFlags::MULTI_CONN));
        until("all connections", || client.connected() == 4);
        exercise(&client, 30);
    }
}

#[test]
fn qemu_nbd() {
    if !has("qemu-nbd") {
        return;
    }
    let dir = TestDir::new();
    let disk = dir.disk(64 * MIB).display().to_string();
    let socket = dir.path("socket");
    let name = socket.display().to_string();
    let words = ["-t", "-e", "0", "-f", "raw", "-x", "export", "-k", &name, &disk];
    let _server = Server::start("qemu-nbd", &words, &socket);
    let client = plain_client(&dir.uri("export"), Settings::default()).expect("connected");
    exercise(&client, 30);
    let missing = plain_client(&dir.uri("other"), Settings::default()).err().expect("refused");
    assert!(matches!(&missing, ConnectError::NoExport { export, .. } if export == "other"), "{missing}");
}

#[test]
fn nbd_server_over_tcp() {
    if !has("nbd-server") {
        return;
    }
    let dir = TestDir::new();
    let disk = dir.disk(64 * MIB).display().to_string();
    let port = free_port();
    let configuration = format!(
        "[generic]\nlistenaddr = 127.0.0.1\nport = {port}\n[swap]\nexportname = {disk}\nfilesize = {}\nflush = true\nfua = true\ntrim = \
         true\n",
        64 * MIB
    );
    let file = dir.path("configuration");
    std::fs::write(&file, configuration).expect("written");
    let pid = dir.path("pid");
    let words = ["-C", &file.display().to_string(), "-p", &pid.display().to_string()];
    let _server = Daemon::start("nbd-server", &words, &pid);
    // The name may stand for two addresses, of which one answers.
    let uri = Uri::parse(&format!("nbd://localhost:{port}/swap")).expect("a URI");
    until("it listens", || plain_client(&uri, Settings::default()).is_ok());
    let client = plain_client(&uri, Settings::default()).expect("connected");
    assert_eq!(client.agreed().size, 64 * MIB);
    exercise(&client, 30);
}

/// A port that nothing uses.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a port")
        .port()
}

#[test]
fn errors_are_tried_again_and_then_said() {
    if !has("nbdkit") {
        return;
    }
    let dir = TestDir::new();
    let words = ["--filter=error", "memory", "64M", "error=EIO", "error-rate=3%"];
    let server = Server::nbdkit(&dir, &words);
    let client = connect(&dir, Settings::default());
    exercise(&client, 24);
    let counted = client.statistics();
    assert!(counted.server_errors > 2 && counted.resent >= counted.server_errors, "{counted:?}");
    drop((client, server));
    let words = ["--filter=error", "memory", "64M", "error=EIO", "error-pread-rate=100%"];
    let _server = Server::nbdkit(&dir, &words);
    let client = connect(&dir, Settings::default());
    assert_eq!(client.read(0, 4096), Err(RequestError::Server(5)));
    client.write(0, vec![1; 4096], 0).expect("writes are not disturbed");
    assert_eq!(client.statistics().server_errors, 4);
}

#[test]
fn delayed_requests_go_on_side_by_side() {
    if !has("nbdkit") {
        return;
    }
    let dir = TestDir::new();
    let _server = Server::nbdkit(&dir, &["--filter=delay", "memory", "64M", "rdelay=250ms"]);
    let client = connect(&dir, Settings::default());
    let (sender, receiver) = mpsc::channel();
    let began = Instant::now();
    for index in 0..32 {
        let operation =
            Operation { command: Command::Read, flags: 0, offset: index * BLOCK, length: 4096, data: vec![] };
        let sender = sender.clone();
        client.submit(operation, Box::new(move |result| drop(sender.send(result))));
    }
    assert!((0..32).all(|_| receiver.recv().expect("an answer").is_ok()));
    assert!(began.elapsed() < Duration::from_secs(3), "{:?} for 32 of 250 ms", began.elapsed());
}

#[test]
fn what_is_not_answered_ends_and_what_is_under_way_is_bounded() {
    if !has("nbdkit") {
        return;
    }
    let dir = TestDir::new();
    let server = Server::nbdkit(&dir, &["--filter=rate", "memory", "64M", "rate=80M"]);
    let settings = Settings { timeout: Duration::from_secs(2), connections: 2, in_flight_max: 256 << 10 };
    let client = connect(&dir, settings);
    exercise(&client, 1);
    server.signal("-STOP");
    let began = Instant::now();
    assert_eq!(client.read(0, 4096), Err(RequestError::TimedOut));
    assert!(
        began.elapsed() >= settings.timeout && began.elapsed() < settings.timeout * 3,
        "{:?}",
        began.elapsed()
    );
    server.signal("-CONT");
    until("an answer", || client.read(0, 4096).is_ok());
}

#[test]
fn a_restarted_server_is_found_again_with_all_that_was_under_way() {
    if !has("nbdkit") {
        return;
    }
    let dir = TestDir::new();
    let disk = dir.disk(64 * MIB).display().to_string();
    let mut server = Some(Server::nbdkit(&dir, &["file", &disk]));
    let client = connect(&dir, Settings::default());
    thread::scope(|scope| {
        let exercising = scope.spawn(|| exercise(&client, 150));
        for _ in 0..5 {
            thread::sleep(Duration::from_millis(40));
            drop(server.take());
            thread::sleep(Duration::from_millis(15));
            server = Some(Server::nbdkit(&dir, &["file", &disk]));
        }
        exercising.join().expect("nothing was lost");
    });
    assert!(client.statistics().reconnects >= 1, "{:?}", client.statistics());
}

/// All requests that wait for a connection go out while the answers come in: neither direction may
/// wait for the other.
#[test]
fn much_that_waited_is_sent_and_answered_at_once() {
    if !has("nbdkit") {
        return;
    }
    let dir = TestDir::new();
    let disk = dir.disk(64 * MIB).display().to_string();
    let server = Server::nbdkit(&dir, &["file", &disk]);
    let client = connect(&dir, Settings { connections: 1, ..Settings::default() });
    let (length, half) = (256_u32 << 10, 30);
    let offset = |index: u64| index * u64::from(length);
    for index in 0..half {
        client.write(offset(index), vec![index as u8; length as usize], 0).expect("written");
    }
    drop(server);
    until("it is away", || client.connected() == 0);
    let (sender, receiver) = mpsc::channel();
    for index in 0..2 * half {
        let (command, data) = match index < half {
            true => (Command::Read, vec![]),
            false => (Command::Write, vec![index as u8; length as usize]),
        };
        let operation = Operation { command, flags: 0, offset: offset(index), length, data };
        let sender = sender.clone();
        client.submit(operation, Box::new(move |result| drop(sender.send((index, result)))));
    }
    let _server = Server::nbdkit(&dir, &["file", &disk]);
    for _ in 0..2 * half {
        let (index, result) = receiver.recv_timeout(Duration::from_secs(4)).expect("an answer");
        let data = result.expect("done");
        assert!(data.iter().all(|&byte| u64::from(byte) == index), "{index}");
    }
    for index in half..2 * half {
        assert!(client.read(offset(index), length).expect("read") == vec![index as u8; length as usize]);
    }
    // The socket is there a moment before the server is.
    assert!(client.statistics().reconnects <= 2, "{:?}", client.statistics());
}

#[test]
fn tls_with_the_right_certificate_and_with_wrong_ones() {
    let dir = TestDir::new();
    if !has("nbdkit") || !certificates(&dir) {
        return;
    }
    let pki = dir.path("pki").display().to_string();
    let words = ["--tls=require", &format!("--tls-certificates={pki}"), "memory", "64M"];
    let _server = Server::nbdkit(&dir, &words);
    let uri = |rest: &str| {
        let socket = dir.path("socket");
        Uri::parse(&format!("nbds+unix:///?socket={}&{rest}", socket.display())).expect("a URI")
    };
    let right = uri(&format!("tls-certificates={pki}&tls-hostname=localhost"));
    let client = plain_client(&right, Settings::default()).expect("connected");
    exercise(&client, 20);
    assert_eq!(client.statistics().reconnects, 0);
    drop(client);
    // More than one record waits to be read.
    let client = plain_client(&right, Settings { connections: 1, ..Settings::default() }).expect("connected");
    read_many(&client);
    assert_eq!(client.statistics().reconnects, 0);
    let refused = |uri: &Uri| plain_client(uri, Settings::default()).err().expect("refused");
    let other =
        refused(&uri(&format!("tls-certificates={}&tls-hostname=localhost", dir.path("other").display())));
    assert!(matches!(other, ConnectError::Tls(_)), "{other}");
    let name = refused(&uri(&format!("tls-certificates={pki}&tls-hostname=elsewhere")));
    assert!(matches!(name, ConnectError::Tls(_)), "{name}");
    let nowhere = refused(&uri("tls-certificates=/nowhere&tls-hostname=localhost"));
    assert!(matches!(nowhere, ConnectError::Certificates { .. }), "{nowhere}");
    let without = refused(&dir.uri(""));
    assert!(matches!(without, ConnectError::TlsRequired), "{without}");
    drop(client);
    let plain = TestDir::new();
    let _server = Server::nbdkit(&plain, &["memory", "64M"]);
    let socket = plain.path("socket");
    let uri =
        format!("nbds+unix:///?socket={}&tls-certificates={pki}&tls-hostname=localhost", socket.display());
    let none = refused(&Uri::parse(&uri).expect("a URI"));
    assert!(matches!(none, ConnectError::NoTls(_)), "{none}");
}

#[test]
fn nobody_and_nothing_are_told_apart() {
    let refused = |uri: &str| {
        plain_client(&Uri::parse(uri).expect("a URI"), Settings::default()).err().expect("refused")
    };
    let unknown = refused("nbd://no-such-host.invalid/");
    assert!(matches!(unknown, ConnectError::Resolve { .. }), "{unknown}");
    let port = free_port();
    let nobody = refused(&format!("nbd://127.0.0.1:{port}/"));
    assert!(matches!(nobody, ConnectError::Connect { .. }), "{nobody}");
    let nothing = refused("nbd+unix:///?socket=/nowhere");
    assert!(matches!(nothing, ConnectError::Connect { .. }), "{nothing}");
}

#[test]
fn requests_that_no_server_should_see_are_refused() {
    if !has("nbdkit") {
        return;
    }
    let dir = TestDir::new();
    let _server = Server::nbdkit(&dir, &["-r", "memory", "1M"]);
    let client = connect(&dir, Settings::default());
    assert_eq!(client.write(0, vec![0; 4096], 0), Err(RequestError::Unsupported));
    assert!(matches!(client.read(MIB - 1, 2), Err(RequestError::Range { .. })));
    assert!(matches!(client.read(u64::MAX, 2), Err(RequestError::Range { .. })));
    assert!(matches!(client.read(0, 0), Err(RequestError::Range { .. })));
}
