//! A Redis client that writes values made from their keys and checks each of them.
//!
//! `acc-redis SOCKET write FROM TO BYTES`, `acc-redis SOCKET check FROM TO BYTES`,
//! `acc-redis SOCKET save`, `acc-redis SOCKET shutdown`, `acc-redis SOCKET ping`.

use folioswap_acceptance::data::Random;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};

struct Client {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
}

#[derive(Debug, PartialEq)]
enum Reply {
    Simple(String),
    Bulk(Option<Vec<u8>>),
}

impl Client {
    fn new(path: &str) -> io::Result<Self> {
        let writer = UnixStream::connect(path)?;
        writer.set_read_timeout(Some(Duration::from_secs(120)))?;
        Ok(Client { reader: BufReader::new(writer.try_clone()?), writer })
    }
    fn send(&mut self, words: &[&[u8]]) -> io::Result<()> {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        self.writer.write_all(&bytes)
    }
    fn receive(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        match line.split_at_checked(1) {
            Some(("+" | ":", rest)) => Ok(Reply::Simple(rest.to_owned())),
            Some(("$", "-1")) => Ok(Reply::Bulk(None)),
            Some(("$", length)) => {
                let length: usize = length.parse().map_err(io::Error::other)?;
                let mut bytes = vec![0; length + 2];
                self.reader.read_exact(&mut bytes)?;
                bytes.truncate(length);
                Ok(Reply::Bulk(Some(bytes)))
            }
            _ => Err(io::Error::other(format!("redis says {line}"))),
        }
    }
    fn ask(&mut self, words: &[&[u8]]) -> io::Result<Reply> {
        self.send(words)?;
        self.receive()
    }
}

/// Makes a value half of noise and half of text, as most data is.
fn value(key: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random::new(key ^ 0x0072_6564_6973);
    let mut out = Vec::with_capacity(bytes + 64);
    while out.len() < bytes {
        out.extend_from_slice(&random.next().to_le_bytes());
        out.extend_from_slice(format!("key{key:08}").as_bytes());
    }
    out.truncate(bytes);
    out
}

fn run(arguments: &[String]) -> io::Result<()> {
    let [socket, action, rest @ ..] = arguments else {
        return Err(io::Error::other("SOCKET ACTION ..."));
    };
    let start = Instant::now();
    let mut client = loop {
        match Client::new(socket) {
            Ok(client) => break client,
            Err(error) if start.elapsed() > Duration::from_secs(30) => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    match action.as_str() {
        "write" | "check" => {
            let numbers: Vec<u64> = rest.iter().map(|word| word.parse().expect("a number")).collect();
            let (from, to, bytes) = (numbers[0], numbers[1], numbers[2] as usize);
            // The values go in batches, as a pipelining client sends them.
            for batch in (from..to).collect::<Vec<_>>().chunks(64) {
                for key in batch {
                    let name = format!("folioswap:{key}");
                    if action == "write" {
                        client.send(&[b"SET", name.as_bytes(), &value(*key, bytes)])?;
                    } else {
                        client.send(&[b"GET", name.as_bytes()])?;
                    }
                }
                for key in batch {
                    let reply = client.receive()?;
                    let right = match (action.as_str(), &reply) {
                        ("write", Reply::Simple(text)) => text == "OK",
                        ("check", Reply::Bulk(Some(got))) => *got == value(*key, bytes),
                        _ => false,
                    };
                    if !right {
                        let shown = match &reply {
                            Reply::Bulk(Some(got)) => format!("{} bytes, other than written", got.len()),
                            other => format!("{other:?}"),
                        };
                        return Err(io::Error::other(format!("{action} of key {key}: {shown}")));
                    }
                }
            }
        }
        "save" => {
            let last = client.ask(&[b"LASTSAVE"])?;
            // LASTSAVE counts seconds, so the new time must differ from the old one.
            std::thread::sleep(Duration::from_millis(1100));
            client.ask(&[b"BGSAVE"])?;
            while client.ask(&[b"LASTSAVE"])? == last {
                if start.elapsed() > Duration::from_secs(600) {
                    return Err(io::Error::other("BGSAVE does not end"));
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        "ping" => {
            client.ask(&[b"PING"])?;
        }
        "shutdown" => client.send(&[b"SHUTDOWN", b"NOSAVE"])?,
        _ => return Err(io::Error::other(format!("unknown action {action}"))),
    }
    println!("{action} ok");
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("acc-redis {}: {error}", arguments.join(" "));
            ExitCode::FAILURE
        }
    }
}
