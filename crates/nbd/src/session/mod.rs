//! One connection to an export: reaching the server, the fixed newstyle negotiation, and the two
//! directions of the transmission that follows.

mod negotiation;

pub use self::negotiation::{choose, greet, negotiate_with};

use self::negotiation::start_tls;
use crate::error::ConnectError;
use crate::reply::{Expected, ReplyError, ReplyStyle, Waiting, read_reply};
use crate::tls::{self, Tls};
use crate::uri::{Address, Uri};
use crate::wire::{Command, ExportFlags, Request};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::net::sockopt;
use rustls::ClientConnection;
use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Most bytes of a request, unless the server allows fewer.
pub const REQUEST_MAX: u32 = 32 << 20;
/// The time between two probes of an idle connection, and the number of probes that may go
/// unanswered.
const KEEPALIVE: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;
/// Bytes of the buffer through which small parts of replies are read; large ones bypass it.
const BUFFER: usize = 4 << 10;

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

    /// Ends both directions, so that every read and write of the socket fails at once.
    pub fn end(&self) {
        let _ = match self {
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Socket::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    /// Sets the longest time of one read or write.
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

/// Makes small requests leave at once, and lets a peer that has vanished be noticed.
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

/// The result of the negotiation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Bytes of the export.
    pub size: u64,
    /// Features of the export.
    pub flags: ExportFlags,
    /// The offset and the length of every request are multiples of this.
    pub block: u32,
    /// Most bytes of a request's data.
    pub request_max: u32,
    /// The form of replies.
    pub style: ReplyStyle,
    /// The canonical name, if the server sends it.
    pub name: Option<String>,
}

/// A connection that is ready for requests.
pub struct Session {
    socket: Socket,
    tls: Option<ClientConnection>,
    /// The result of its negotiation.
    pub agreed: Agreed,
}

/// The direction of requests.
pub enum Requests {
    /// Without TLS.
    Plain(Socket),
    /// Through TLS.
    Tls(tls::TlsWriter<Socket>),
}

/// The direction of replies.
pub enum Replies {
    /// Without TLS.
    Plain(BufReader<Socket>),
    /// Through TLS.
    Tls(Box<BufReader<tls::TlsReader<Socket>>>),
}

impl Session {
    /// Connects to an export. Each step blocks for at most `patience`.
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
                // A server that rejects our certificate says so in its first record after the
                // handshake.
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

    /// Sends one request and waits for its reply, with nothing else under way. Returns the data of
    /// a read, or the server's error.
    ///
    /// # Errors
    /// The connection cannot be used any more.
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

    /// The two directions of the connection, and the socket, by which both can be ended.
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
