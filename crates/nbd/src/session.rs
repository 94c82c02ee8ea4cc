//! One connection to an export: reaching the server, the fixed newstyle negotiation, and the two directions of what follows.

use crate::error::ConnectError;
use crate::reply::{Expected, ReplyError, ReplyStyle, Waiting, read_reply};
use crate::tls::{self, Tls};
use crate::uri::{Address, Uri};
use crate::wire::{
    ClientOption, Command, ExportFlags, ExportInformation, MAGIC_GREETING, MAGIC_OPTION, OptionReply,
    ProtocolError, Request, be16, be64, encode_go, encode_option, greeting, option_reply,
};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::net::sockopt;
use rustls::ClientConnection;
use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Most bytes of a request, unless the server wants less.
pub const REQUEST_MAX: u32 = 32 << 20;
/// Between two probes of a connection on which nothing happens, and how many go unanswered.
const KEEPALIVE: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;
/// Small pieces of replies are read through a buffer of so many bytes; large ones past it.
const BUFFER: usize = 4 << 10;
/// Answers to one option, at most.
const ANSWERS_MAX: usize = 64;

/// A connected socket of either kind.
#[derive(Debug)]
pub enum Socket {
    /// TCP.
    Tcp(TcpStream),
    /// A Unix socket.
    Unix(UnixStream),
}

impl Socket {
    fn connect(address: &Address, patience: Duration) -> Result<Self, ConnectError> {
        match address {
            Address::Unix(path) => {
                let failed = |source| ConnectError::Connect { place: path.display().to_string(), source };
                UnixStream::connect(path).map(Socket::Unix).map_err(failed)
            }
            Address::Tcp { host, port } => {
                let resolve = |source| ConnectError::Resolve { host: host.clone(), source };
                let addresses = (host.as_str(), *port).to_socket_addrs().map_err(resolve)?;
                let mut last = io::ErrorKind::NotFound.into();
                for address in addresses {
                    match TcpStream::connect_timeout(&address, patience) {
                        Ok(stream) => {
                            prepare(&stream).map_err(ConnectError::Broken)?;
                            return Ok(Socket::Tcp(stream));
                        }
                        Err(error) => last = error,
                    }
                }
                Err(ConnectError::Connect { place: format!("{host}:{port}"), source: last })
            }
        }
    }

    /// Another handle of the same socket.
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn again(&self) -> io::Result<Self> {
        match self {
            Socket::Tcp(stream) => stream.try_clone().map(Socket::Tcp),
            Socket::Unix(stream) => stream.try_clone().map(Socket::Unix),
        }
    }

    /// Ends both directions: whoever reads or writes it fails at once.
    pub fn end(&self) {
        let _ = match self {
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Socket::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    /// How long one read or write may take.
    fn set_patience(&self, patience: Duration) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => {
                stream.set_read_timeout(Some(patience))?;
                stream.set_write_timeout(Some(patience))
            }
            Socket::Unix(stream) => {
                stream.set_read_timeout(Some(patience))?;
                stream.set_write_timeout(Some(patience))
            }
        }
    }
}

/// Small requests leave at once, and a peer that has vanished is noticed.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)?;
    Ok(())
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.read(buffer),
            Socket::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.write(buffer),
            Socket::Unix(stream) => stream.write(buffer),
        }
    }
    fn write_vectored(&mut self, buffers: &[io::IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.write_vectored(buffers),
            Socket::Unix(stream) => stream.write_vectored(buffers),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What was agreed upon with the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Bytes of the export.
    pub size: u64,
    /// What it can do.
    pub flags: ExportFlags,
    /// Every request's place and length is a multiple of this.
    pub block: u32,
    /// Most bytes of a request's data.
    pub request_max: u32,
    /// How replies look.
    pub style: ReplyStyle,
    /// The canonical name, if the server says it.
    pub name: Option<String>,
}

/// A connection that is ready for requests.
pub struct Session {
    socket: Socket,
    tls: Option<ClientConnection>,
    /// What holds for it.
    pub agreed: Agreed,
}

/// The direction of requests.
pub enum Requests {
    /// As they are.
    Plain(Socket),
    /// Through TLS.
    Tls(tls::TlsWriter<Socket>),
}

/// The direction of replies.
pub enum Replies {
    /// As they are.
    Plain(BufReader<Socket>),
    /// Through TLS.
    Tls(Box<BufReader<tls::TlsReader<Socket>>>),
}

impl Session {
    /// Connects to an export. Blocks for as long as `patience` in each step.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(uri: &Uri, tls: Option<&Tls>, patience: Duration) -> Result<Self, ConnectError> {
        let mut socket = Socket::connect(&uri.address, patience)?;
        socket.set_patience(patience).map_err(ConnectError::Broken)?;
        greet(&mut socket)?;
        let (connection, agreed) = match tls {
            None => (None, choose(&mut socket, &uri.export)?),
            Some(tls) => {
                start_tls(&mut socket)?;
                let mut connection = tls.begin(&mut socket)?;
                let agreed = choose(&mut rustls::Stream::new(&mut connection, &mut socket), &uri.export);
                // A server that does not like our certificate says so with its first record after the handshake.
                let agreed = agreed.map_err(|error| match error {
                    ConnectError::Broken(error) => match error.downcast::<rustls::Error>() {
                        Ok(error) => ConnectError::Tls(error),
                        Err(error) => ConnectError::Broken(error),
                    },
                    other => other,
                })?;
                (Some(connection), agreed)
            }
        };
        Ok(Session { socket, tls: connection, agreed })
    }

    /// Sends one request and waits for its reply, while nothing else is under way: the data of a read, or the server's error.
    ///
    /// # Errors
    /// The connection is of no use any more.
    pub fn request(&mut self, request: Request, data: &[u8]) -> Result<Result<Vec<u8>, u32>, ConnectError> {
        let expected = match request.command {
            Command::Read => Expected::data(request.offset, request.length),
            _ => Expected::no_data(),
        };
        let style = self.agreed.style;
        match &mut self.tls {
            None => exchange(&mut self.socket, style, request, data, expected),
            Some(tls) => {
                exchange(&mut rustls::Stream::new(tls, &mut self.socket), style, request, data, expected)
            }
        }
    }

    /// Its two directions, and the socket, by which both can be ended.
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn split(self) -> io::Result<(Requests, Replies, Socket)> {
        let (reads, end) = (self.socket.again()?, self.socket.again()?);
        Ok(match self.tls {
            None => {
                (Requests::Plain(self.socket), Replies::Plain(BufReader::with_capacity(BUFFER, reads)), end)
            }
            Some(connection) => {
                let (reads, writes) = tls::split(connection, reads, self.socket);
                let reads = Box::new(BufReader::with_capacity(BUFFER, reads));
                (Requests::Tls(writes), Replies::Tls(reads), end)
            }
        })
    }

    /// The socket's descriptor.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Requests {
    /// Sends a request and its data.
    ///
    /// # Errors
    /// The connection failed.
    pub fn send(&mut self, head: &[u8], data: &[u8]) -> io::Result<()> {
        match self {
            Requests::Tls(writer) => {
                writer.write_all(head)?;
                writer.write_all(data)
            }
            Requests::Plain(socket) => {
                let mut sent = 0;
                while sent < head.len() {
                    let parts = [io::IoSlice::new(&head[sent..]), io::IoSlice::new(data)];
                    match socket.write_vectored(&parts) {
                        Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                        Ok(count) => sent += count,
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) => return Err(error),
                    }
                }
                socket.write_all(&data[sent - head.len()..])
            }
        }
    }
}

impl Read for Replies {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Replies::Plain(reader) => reader.read(buffer),
            Replies::Tls(reader) => reader.read(buffer),
        }
    }
}

fn exchange(
    server: &mut (impl Read + Write),
    style: ReplyStyle,
    request: Request,
    data: &[u8],
    expected: Expected,
) -> Result<Result<Vec<u8>, u32>, ConnectError> {
    struct One(u64, Option<Expected>, Option<Expected>);
    impl Waiting for One {
        fn lend(&mut self, cookie: u64) -> Option<Expected> {
            self.1.take_if(|_| cookie == self.0)
        }
        fn put_back(&mut self, _: u64, expected: Expected) {
            self.1 = Some(expected);
        }
        fn done(&mut self, _: u64, expected: Expected) {
            self.2 = Some(expected);
        }
    }
    let mut sent = request.encode().to_vec();
    sent.extend(data);
    server.write_all(&sent).and_then(|()| server.flush()).map_err(ConnectError::Broken)?;
    let mut one = One(request.cookie, Some(expected), None);
    loop {
        match read_reply(server, style, &mut one) {
            Ok(()) => {}
            Err(ReplyError::Protocol(error)) => return Err(error.into()),
            Err(ReplyError::Io(error)) => return Err(ConnectError::Broken(error)),
            Err(ReplyError::Idle) => return Err(ConnectError::Broken(io::ErrorKind::TimedOut.into())),
        }
        if let Some(done) = one.2.take() {
            return Ok(done.finish()?);
        }
    }
}

/// The server's greeting, and our answer.
///
/// # Errors
/// [`ConnectError::Protocol`], [`ConnectError::Broken`].
pub fn greet(server: &mut (impl Read + Write)) -> Result<(), ConnectError> {
    let mut bytes = [0; 18];
    server.read_exact(&mut bytes).map_err(ConnectError::Broken)?;
    let flags = be16(&bytes[16..]);
    let is_newstyle = be64(&bytes) == MAGIC_GREETING && be64(&bytes[8..]) == MAGIC_OPTION;
    if !is_newstyle || flags & greeting::FIXED_NEWSTYLE == 0 {
        return Err(ProtocolError::Greeting.into());
    }
    let ours = flags & (greeting::FIXED_NEWSTYLE | greeting::NO_ZEROES);
    server.write_all(&u32::from(ours).to_be_bytes()).map_err(ConnectError::Broken)
}

fn start_tls(server: &mut (impl Read + Write)) -> Result<(), ConnectError> {
    ask(server, ClientOption::StartTls, &[])?;
    match answer(server, ClientOption::StartTls)? {
        (option_reply::ACK, _) => Ok(()),
        (kind, text) => Err(ConnectError::NoTls(refusal(kind, &text))),
    }
}

/// Asks for structured replies and for the export.
///
/// # Errors
/// [`ConnectError`].
pub fn choose(server: &mut (impl Read + Write), export: &str) -> Result<Agreed, ConnectError> {
    ask(server, ClientOption::StructuredReply, &[])?;
    let style = match answer(server, ClientOption::StructuredReply)? {
        (option_reply::ACK, _) => ReplyStyle::Structured,
        (option_reply::TLS_REQUIRED, _) => return Err(ConnectError::TlsRequired),
        _ => ReplyStyle::Simple,
    };
    ask(server, ClientOption::Go, &encode_go(export))?;
    let mut information = ExportInformation::default();
    for _ in 0..ANSWERS_MAX {
        match answer(server, ClientOption::Go)? {
            (option_reply::INFO, payload) => information.take(&payload)?,
            (option_reply::ACK, _) => {
                let size = information.size.ok_or(ProtocolError::NoSize)?;
                let (block, most) = information.blocks.unwrap_or((1, REQUEST_MAX));
                let (flags, request_max) = (information.flags, most.min(REQUEST_MAX));
                return Ok(Agreed { size, flags, block, request_max, style, name: information.name });
            }
            (option_reply::TLS_REQUIRED, _) => return Err(ConnectError::TlsRequired),
            (kind @ (option_reply::UNKNOWN | option_reply::POLICY), text) => {
                let reason = refusal(kind, &text);
                let reason = if reason.is_empty() { reason } else { format!(" ({reason})") };
                return Err(ConnectError::NoExport { export: export.to_owned(), reason });
            }
            (kind, text) => {
                let reason = format!(": {}", refusal(kind, &text));
                return Err(ConnectError::Refused { option: ClientOption::Go, reason });
            }
        }
    }
    Err(ProtocolError::NoSize.into())
}

fn ask(server: &mut impl Write, option: ClientOption, data: &[u8]) -> Result<(), ConnectError> {
    server.write_all(&encode_option(option, data)).map_err(ConnectError::Broken)?;
    server.flush().map_err(ConnectError::Broken)
}

fn answer(server: &mut impl Read, option: ClientOption) -> Result<(u32, Vec<u8>), ConnectError> {
    let mut head = [0; OptionReply::BYTES];
    server.read_exact(&mut head).map_err(ConnectError::Broken)?;
    let reply = OptionReply::decode(&head, option)?;
    let mut payload = vec![0; reply.length as usize];
    server.read_exact(&mut payload).map_err(ConnectError::Broken)?;
    Ok((reply.kind, payload))
}

/// A server's words for a refusal, made fit to be shown.
fn refusal(kind: u32, text: &[u8]) -> String {
    let said: String =
        String::from_utf8_lossy(text).chars().filter(|character| !character.is_control()).take(200).collect();
    let meaning = match kind {
        option_reply::UNSUPPORTED => "not supported",
        option_reply::POLICY => "not allowed",
        option_reply::SHUTDOWN => "the server is shutting down",
        option_reply::UNKNOWN => "",
        _ => "refused",
    };
    match (said.is_empty(), meaning.is_empty()) {
        (true, _) => meaning.to_owned(),
        (false, true) => said,
        (false, false) => format!("{meaning}: {said}"),
    }
}

/// For fuzzing: a whole negotiation against a server that says these bytes, whatever it is told.
pub fn negotiate_with(said: &[u8]) -> Result<Agreed, ConnectError> {
    struct Server<'a>(&'a [u8]);
    impl Read for Server<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.read(buffer)
        }
    }
    impl Write for Server<'_> {
        fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
            Ok(buffer.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut server = Server(said);
    greet(&mut server)?;
    choose(&mut server, "export")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(flags: u16) -> Vec<u8> {
        let mut bytes = MAGIC_GREETING.to_be_bytes().to_vec();
        bytes.extend(MAGIC_OPTION.to_be_bytes());
        bytes.extend(flags.to_be_bytes());
        bytes
    }
    fn reply(option: ClientOption, kind: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = crate::wire::MAGIC_OPTION_REPLY.to_be_bytes().to_vec();
        bytes.extend((option as u32).to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        bytes.extend((payload.len() as u32).to_be_bytes());
        bytes.extend(payload);
        bytes
    }
    fn good() -> Vec<u8> {
        [
            hello(3),
            reply(ClientOption::StructuredReply, option_reply::ACK, &[]),
            reply(ClientOption::Go, option_reply::INFO, &[0, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 1, 0x6d]),
            reply(ClientOption::Go, option_reply::INFO, &[0, 3, 0, 0, 0, 1, 0, 0, 16, 0, 0, 0x40, 0, 0]),
            reply(ClientOption::Go, option_reply::ACK, &[]),
        ]
        .concat()
    }

    #[test]
    fn a_negotiation_comes_to_its_end() {
        let agreed = negotiate_with(&good()).expect("agreed");
        assert_eq!((agreed.size, agreed.block, agreed.request_max), (4 << 20, 1, 4 << 20));
        assert_eq!(agreed.style, ReplyStyle::Structured);
        assert!(agreed.flags.has(ExportFlags::MULTI_CONN) && agreed.flags.has(ExportFlags::TRIM));
    }

    #[test]
    fn each_refusal_has_its_error() {
        let until_go =
            [hello(3), reply(ClientOption::StructuredReply, option_reply::UNSUPPORTED, b"no")].concat();
        let go = |kind, text: &[u8]| {
            negotiate_with(&[&until_go[..], &reply(ClientOption::Go, kind, text)].concat())
                .expect_err("refused")
        };
        assert!(matches!(go(option_reply::UNKNOWN, b"none\x1b[31m"), ConnectError::NoExport { reason, .. }
            if reason == " (none[31m)"));
        assert!(matches!(go(option_reply::TLS_REQUIRED, b""), ConnectError::TlsRequired));
        assert!(matches!(go(option_reply::SHUTDOWN, b""), ConnectError::Refused { .. }));
        assert!(matches!(go(option_reply::ACK, b""), ConnectError::Protocol(ProtocolError::NoSize)));
        assert!(matches!(negotiate_with(&hello(0)), Err(ConnectError::Protocol(ProtocolError::Greeting))));
        assert!(matches!(negotiate_with(b"SSH-2.0-OpenSSH_9.2 and more"), Err(ConnectError::Protocol(_))));
        assert!(matches!(negotiate_with(b"short"), Err(ConnectError::Broken(_))));
    }

    #[test]
    fn no_greeting_makes_it_panic_or_wait_for_more_than_there_is() {
        let good = good();
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        for _ in 0..60_000 {
            let mut bytes = good.clone();
            for _ in 0..1 + random % 4 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let at = (random % bytes.len() as u64) as usize;
                bytes[at] = (random >> 32) as u8;
            }
            let _ = negotiate_with(&bytes);
        }
    }
}
