//! What Rust's standard library does with memory, verified.
//!
//!     library CASE MEBIBYTES

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::env;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, IoSliceMut, Read, Seek, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::panic;
use std::process::{self, Command, Stdio};
use std::sync::{Barrier, RwLock, mpsc};
use std::thread;
use std::time::Duration;

const MIB: usize = 1 << 20;
/// Words of a mebibyte.
const WORDS: usize = MIB / 8;

fn value(index: usize, version: u64) -> u64 {
    (index as u64 * 1_000_003 + version).wrapping_mul(2_654_435_761)
}

fn filled(bytes: usize, version: u64) -> Vec<u64> {
    (0..bytes / 8).map(|index| value(index, version)).collect()
}

fn check(memory: &[u64], version: u64) {
    for (index, word) in memory.iter().enumerate() {
        assert_eq!(*word, value(index, version), "word {index} of version {version}");
    }
}

fn bytes_of(words: &[u64]) -> &[u8] {
    // SAFETY: any bytes of initialized words are bytes, and the borrow of the words lasts as long.
    unsafe { words.align_to().1 }
}

/// Words read from a stream to its end.
fn received(stream: &mut impl Read) -> Vec<u64> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("read");
    bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight"))).collect()
}

/// Threads rewrite their own quarter, check each other's, and send each other what they allocate.
fn threads(bytes: usize) {
    let quarters: Vec<_> = (0..4).map(|number| RwLock::new(filled(bytes / 4, number))).collect();
    let barrier = Barrier::new(quarters.len());
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..4).map(|_| mpsc::channel::<Vec<u64>>()).unzip();
    thread::scope(|scope| {
        for (number, receiver) in receivers.into_iter().enumerate() {
            let (senders, quarters, barrier) = (senders.clone(), &quarters, &barrier);
            scope.spawn(move || {
                for round in 0..3 {
                    for other in 0..4 {
                        let quarter = quarters[(number + other) % 4].read().expect("read");
                        check(&quarter, round * 10 + (number as u64 + other as u64) % 4);
                    }
                    for sender in &senders {
                        sender.send(filled(MIB / 2, round)).expect("sent");
                    }
                    barrier.wait();
                    let version = (round + 1) * 10 + number as u64;
                    for (index, word) in quarters[number].write().expect("write").iter_mut().enumerate() {
                        *word = value(index, version);
                    }
                    for _ in &senders {
                        check(&receiver.recv().expect("received"), round);
                    }
                    barrier.wait();
                }
            });
        }
    });
}

/// Each thread makes tables of texts one after the other, of which half are replaced, and keeps
/// them as trees. One table is small beside all of the trees: its places are random.
fn maps(bytes: usize) {
    let entries = bytes / 32 / 100;
    let text = |number: usize, version: u64| format!("{:030}", value(number, version));
    let tree_of = |version: u64| {
        let texts = |version: u64| (0..entries).map(move |number| (number, text(number, version)));
        let mut table: HashMap<usize, String> = texts(version).collect();
        table.retain(|number, _| number % 2 == 1);
        table.extend(texts(version + 1).step_by(2));
        table.into_iter().collect()
    };
    let check_tree = |tree: &BTreeMap<usize, String>, version: u64| {
        assert_eq!(tree.len(), entries);
        for (number, found) in tree {
            assert_eq!(*found, text(*number, version + (number % 2 == 0) as u64));
        }
    };
    thread::scope(|scope| {
        for first in [0, 100, 200, 300] {
            scope.spawn(move || {
                let trees: Vec<_> =
                    (0..8).map(|turn| (tree_of(first + turn * 10), first + turn * 10)).collect();
                for (tree, version) in &trees {
                    check_tree(tree, *version);
                }
            });
        }
    });
}

/// Vectors and queues that grow and shrink, fresh memory of zeros, and both kinds of sorting.
fn growth(bytes: usize) {
    let half = bytes / 2;
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut grown = Vec::new();
            for index in 0..half / 8 {
                grown.push(value(index, 1));
            }
            for part in [2, 4, 8] {
                check(&grown, 1);
                grown.truncate(half / 8 / part);
                grown.shrink_to_fit();
                let zeros = vec![0u64; half / 16];
                assert!(zeros.iter().all(|word| *word == 0));
            }
            check(&grown, 1);
        });
        let mut queue = VecDeque::new();
        for index in 0..half / 8 {
            queue.push_back(value(index, 2));
            if index % 4 == 3 {
                let first = queue.pop_front().expect("words");
                queue.push_back(first);
            }
        }
        let mut words = Vec::from(queue);
        let mut copy = words.clone();
        words.sort();
        copy.sort_unstable_by(|a, b| b.cmp(a));
        assert!(words.is_sorted() && words.iter().eq(copy.iter().rev()));
        let mut expected = filled(half, 2);
        expected.sort_unstable();
        assert_eq!(words, expected);
    });
}

/// A frame of a deep stack, which is verified when it is unwound.
struct Frame<'a> {
    words: [u64; 1024],
    depth: usize,
    unwound: &'a mut usize,
}

impl Drop for Frame<'_> {
    fn drop(&mut self) {
        check(&self.words, self.depth as u64);
        *self.unwound += 1;
    }
}

fn descend(depth: usize, unwound: &mut usize) {
    let words = std::array::from_fn(|index| value(index, depth as u64));
    let frame = Frame { words, depth, unwound };
    if depth == 0 {
        panic::resume_unwind(Box::new("the bottom"));
    }
    descend(depth - 1, frame.unwound);
}

/// Panics unwind deep stacks of threads, most of which is away by then.
fn stacks(bytes: usize) {
    let depth = bytes / 2 / 10_000;
    let work = || {
        for _ in 0..2 {
            let mut unwound = 0;
            let reason = panic::catch_unwind(panic::AssertUnwindSafe(|| descend(depth, &mut unwound)));
            assert_eq!(reason.expect_err("a panic").downcast_ref(), Some(&"the bottom"));
            assert_eq!(unwound, depth + 1);
        }
    };
    thread::scope(|scope| {
        for name in ["left", "right"] {
            let builder = thread::Builder::new().name(name.to_owned()).stack_size(bytes / 2 + MIB);
            builder.spawn_scoped(scope, work).expect("a thread");
        }
    });
}

/// What a child does with the words of its parent: it checks them, and fills memory of its own.
fn child(bytes: usize) {
    let own = filled(bytes, 5);
    let words = received(&mut io::stdin());
    check(&words, 1);
    check(&own, 5);
    println!("{}", words.len());
}

/// Children that begin by `posix_spawn` and by `fork`, of this kind and of others.
fn children(bytes: usize) {
    let memory = filled(bytes, 1);
    let me = env::current_exe().expect("own path");
    for round in 0..4 {
        let mut command = Command::new(&me);
        command.args(["child", "8"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        if round % 2 == 1 {
            let (start, length) = (memory.as_ptr().addr(), memory.len());
            // SAFETY: the closure reads what the child has from its parent, and allocates nothing.
            unsafe {
                command.pre_exec(move || {
                    let memory = std::slice::from_raw_parts(start as *const u64, length);
                    let right = memory.iter().enumerate().all(|(index, word)| *word == value(index, 1));
                    if right { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
                });
            }
        }
        let mut child = command.spawn().expect("a child");
        let mut input = child.stdin.take().expect("piped");
        thread::scope(|scope| {
            let words = &memory[..8 * WORDS];
            scope.spawn(move || input.write_all(bytes_of(words)).expect("written"));
            check(&memory, 1);
            let output = child.wait_with_output().expect("ended");
            assert!(output.status.success(), "{}", output.status);
            assert_eq!(output.stdout, format!("{}\n", 8 * WORDS).as_bytes());
        });
        for other in [&["/bin/echo"][..], &["busybox", "echo"]] {
            let output = Command::new(other[0]).args(&other[1..]).arg("words").output().expect("echo");
            assert_eq!(output.stdout, b"words\n");
        }
        check(&memory, 1);
    }
}

/// Files are written from memory that is away, and read into memory that is.
fn files(bytes: usize) {
    let memory = filled(bytes / 2, 1);
    let path = env::temp_dir().join(format!("folioswap-acc-rust-{}", process::id()));
    fs::write(&path, bytes_of(&memory)).expect("written");
    let read = fs::read(&path).expect("read");
    assert!(read == bytes_of(&memory));
    let copy = path.with_extension("copy");
    assert_eq!(fs::copy(&path, &copy).expect("copied"), bytes as u64 / 2);
    let mut file = File::options().read(true).write(true).open(&copy).expect("opened");
    let (mut front, mut back) = (vec![1; bytes / 8], vec![1; bytes / 8]);
    let mut parts = [IoSliceMut::new(&mut front), IoSliceMut::new(&mut back)];
    assert_eq!(file.read_vectored(&mut parts).expect("read"), bytes / 4);
    assert!([front, back].concat() == bytes_of(&memory)[..bytes / 4]);
    for at in (0..bytes / 2).step_by(MIB).rev() {
        let mut piece = vec![0; MIB];
        file.read_exact_at(&mut piece, at as u64).expect("read");
        assert!(piece == bytes_of(&memory)[at..at + MIB]);
    }
    file.set_len(0).expect("empty");
    file.rewind().expect("rewound");
    for word in &memory[..WORDS] {
        writeln!(file, "{word}").expect("written");
    }
    file.rewind().expect("rewound");
    let lines = BufReader::new(&file).lines().map(|line| line.expect("read").parse::<u64>().expect("a word"));
    assert!(lines.eq(memory[..WORDS].iter().copied()));
    fs::remove_file(&path).expect("removed");
    fs::remove_file(&copy).expect("removed");
    check(&memory, 1);
    assert!(read == bytes_of(&memory));
}

/// Streams and messages between threads.
fn network(bytes: usize) {
    let part = bytes / 8;
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let place = listener.local_addr().expect("an address");
    let memory: Vec<_> = (0..4).map(|number| filled(part, number)).collect();
    let got: Vec<Vec<u64>> = thread::scope(|scope| {
        for words in &memory {
            scope.spawn(move || {
                let mut stream = TcpStream::connect(place).expect("connected");
                stream.set_read_timeout(Some(Duration::from_secs(120))).expect("set");
                stream.write_all(bytes_of(words)).expect("sent");
                stream.shutdown(std::net::Shutdown::Write).expect("shut");
                assert!(received(&mut stream) == *words);
            });
        }
        let serve = |(mut stream, _): (TcpStream, _)| {
            scope.spawn(move || {
                let words = received(&mut stream);
                stream.write_all(bytes_of(&words)).expect("sent");
                words
            })
        };
        let servers: Vec<_> = memory.iter().map(|_| serve(listener.accept().expect("accepted"))).collect();
        servers.into_iter().map(|server| server.join().expect("served")).collect()
    });
    for words in &got {
        let version = (0..4).find(|version| words[0] == value(0, *version)).expect("one of them");
        check(words, version);
    }
    let (mut one, mut end) = UnixStream::pair().expect("a pair");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
    let address = socket.local_addr().expect("an address");
    thread::scope(|scope| {
        scope.spawn(|| {
            one.write_all(bytes_of(&memory[1])).expect("sent");
            drop(one);
        });
        assert!(received(&mut end) == memory[1]);
        for piece in bytes_of(&memory[2]).chunks(32 << 10) {
            let mut message = vec![0; 32 << 10];
            assert_eq!(socket.send_to(piece, address).expect("sent"), piece.len());
            assert_eq!(socket.recv(&mut message).expect("received"), piece.len());
            assert!(message == piece);
        }
    });
    for (version, words) in memory.iter().enumerate() {
        check(words, version as u64);
    }
}

fn main() {
    let words: Vec<String> = env::args().collect();
    let bytes = words[2].parse::<usize>().expect("MiB") * MIB;
    match words[1].as_str() {
        "threads" => threads(bytes),
        "maps" => maps(bytes),
        "growth" => growth(bytes),
        "stacks" => stacks(bytes),
        "child" => return child(bytes),
        "children" => children(bytes),
        "files" => files(bytes),
        "network" => network(bytes),
        other => panic!("{other} is no case"),
    }
    println!("ok {}", words[1]);
}
