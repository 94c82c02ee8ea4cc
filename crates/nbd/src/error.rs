//! What can go wrong with an export, and with a request.

use crate::wire::{ClientOption, ProtocolError, error_name};
use std::io;
use std::path::PathBuf;

/// Why a connection to an export cannot be had. Its message says what to do, where we know.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The name means nothing here.
    #[error("the host '{host}' cannot be resolved ({source}): check the name, or give an address")]
    Resolve {
        /// As given.
        host: String,
        /// What the system says.
        source: io::Error,
    },
    /// Nobody answers.
    #[error("cannot connect to {place} ({source}): is the server running, and may this machine reach it?")]
    Connect {
        /// Host and port, or the socket's path.
        place: String,
        /// What the system says.
        source: io::Error,
    },
    /// The connection broke while it was agreed what to do.
    #[error("the server broke the connection off while it was being set up ({0}): its log should say why")]
    Broken(io::Error),
    /// Not an NBD server, or a broken one.
    #[error("the server does not keep to the NBD protocol: {0}")]
    Protocol(#[from] ProtocolError),
    /// No such export.
    #[error("the server has no export named '{export}'{reason}: `nbdinfo --list` shows what it has")]
    NoExport {
        /// As asked for.
        export: String,
        /// What the server says, with a colon before it.
        reason: String,
    },
    /// The server wants TLS.
    #[error("the server demands TLS: write nbds:// (or nbds+unix://) instead of nbd://")]
    TlsRequired,
    /// The server has no TLS.
    #[error(
        "the server does not offer TLS ({0}): give it a certificate, or write nbd:// where the network can be trusted"
    )]
    NoTls(String),
    /// TLS does not come about.
    #[error(
        "TLS with the server fails ({0}): its certificate must be signed by an authority of tls-certificates=DIR (DIR/ca-cert.pem; the \
         system's otherwise) and name the host, or tls-hostname=NAME"
    )]
    Tls(rustls::Error),
    /// A certificate of our own cannot be used.
    #[error("tls-certificates: {}: {reason}", path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A name that no certificate can have.
    #[error("'{0}' is no name that a certificate can be for: give tls-hostname=NAME")]
    Hostname(String),
    /// It refuses something else.
    #[error("the server refuses {option}{reason}")]
    Refused {
        /// What.
        option: ClientOption,
        /// What it says, with a colon before it.
        reason: String,
    },
    /// Nothing can be written.
    #[error("the export is read-only: swap has to write; start the server without its read-only option")]
    ReadOnly,
    /// Less than swap needs.
    #[error("the export has {bytes} bytes; swap needs {least} at least: make it larger")]
    TooSmall {
        /// Its size.
        bytes: u64,
        /// What is needed.
        least: u64,
    },
    /// Pages cannot be read and written one by one.
    #[error("the export's smallest block is {0} bytes: swap needs 4096 or less")]
    LargeBlocks(u32),
    /// Requests cannot be as long as swap makes them.
    #[error("the export takes at most {0} bytes in a request: swap needs 262144")]
    SmallRequests(u32),
    /// The key cannot be kept safe.
    #[error(
        "the key cannot be kept in locked memory ({0}): allow it with `ulimit -l 64`, or write encrypt=no where the network and the server can be trusted"
    )]
    Key(#[from] crate::key::KeyError),
    /// Somebody's data.
    #[error(
        "the export holds something already (its beginning is neither empty nor ours), and nothing was written: name another one, or empty \
         its first 256 KiB if what it holds is not wanted"
    )]
    Foreign,
    /// Somebody else swaps to it.
    #[error(
        "the export is in use as swap by somebody else at this moment: each run needs an export of its own"
    )]
    InUse,
    /// This run swaps to it already.
    #[error("the export is the one of another --swap of this run, under another name: give it once")]
    Twice,
    /// A request failed while the export was being looked at.
    #[error("looking at the export fails: {0}")]
    Request(#[from] RequestError),
    /// It is not the export that it was.
    #[error("{0}")]
    Replaced(Replaced),
}

/// How an export differs from the one that we had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Replaced {
    /// Another size.
    #[error("it has {now} bytes now, and had {before}")]
    Size {
        /// At first.
        before: u64,
        /// Now.
        now: u64,
    },
    /// It cannot do any more what it could.
    #[error("it cannot do any more what it could (flags {now:#x}, before {before:#x})")]
    Flags {
        /// At first.
        before: u16,
        /// Now.
        now: u16,
    },
    /// Our mark is gone: it is empty, or another one.
    #[error("our mark is not on it: it is empty, or another one")]
    Mark,
    /// An older state of it.
    #[error("it is an older state of itself (mark {now}, {before} was confirmed)")]
    Older {
        /// What was confirmed last.
        before: u64,
        /// What is there.
        now: u64,
    },
}

/// Why a request failed. Whoever asked has to go on without: a page is lost, or goes elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The server says so, also when asked again.
    #[error("the server reports {}", error_name(*.0))]
    Server(u32),
    /// No answer in time.
    #[error("the server does not answer")]
    TimedOut,
    /// There is no connection, for longer than a request may take.
    #[error("the server is away")]
    Away,
    /// The export is not the one that it was: nothing of what was written is there.
    #[error("the export was replaced: {0}")]
    Replaced(Replaced),
    /// Outside of the export, not whole blocks, or too long.
    #[error("{length} bytes at {offset} are no whole blocks of the export")]
    Range {
        /// Where.
        offset: u64,
        /// How many bytes.
        length: u64,
    },
    /// The export cannot do this.
    #[error("the export cannot do this")]
    Unsupported,
    /// The client is being ended.
    #[error("the client ends")]
    Stopped,
    /// What came back is not what was written there: damaged, old, or another page's.
    #[error("what came back is not what was written")]
    Forged,
    /// Nothing was ever written there.
    #[error("nothing was written there")]
    Missing,
}
