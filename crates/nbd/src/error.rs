//! The failures of exports and requests.

use crate::wire::{ClientOption, ProtocolError, error_name};
use std::io;
use std::path::PathBuf;

/// The reason why there is no connection to an export. The message says what the user can do, where
/// that is known.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The host name cannot be resolved.
    #[error("the host '{host}' cannot be resolved ({source}): check the name, or give an address")]
    Resolve {
        /// The host, as given.
        host: String,
        /// The system's error.
        source: io::Error,
    },
    /// The server does not answer.
    #[error("cannot connect to {place} ({source}): is the server running, and may this machine reach it?")]
    Connect {
        /// Host and port, or the socket's path.
        place: String,
        /// The system's error.
        source: io::Error,
    },
    /// The connection broke during negotiation.
    #[error("the server broke the connection off while it was being set up ({0}): its log should say why")]
    Broken(io::Error),
    /// The server is no NBD server, or a broken one.
    #[error("the server does not keep to the NBD protocol: {0}")]
    Protocol(#[from] ProtocolError),
    /// There is no such export.
    #[error("the server has no export named '{export}'{reason}: `nbdinfo --list` shows what it has")]
    NoExport {
        /// The export, as requested.
        export: String,
        /// The server's explanation, in brackets.
        reason: String,
    },
    /// The server demands TLS.
    #[error("the server demands TLS: write nbds:// (or nbds+unix://) instead of nbd://")]
    TlsRequired,
    /// The server has no TLS.
    #[error(
        "the server does not offer TLS ({0}): give it a certificate, or write nbd:// where the network can be trusted"
    )]
    NoTls(String),
    /// The TLS handshake fails.
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
        /// The defect.
        reason: String,
    },
    /// No certificate can have this name.
    #[error("'{0}' is no name that a certificate can be for: give tls-hostname=NAME")]
    Hostname(String),
    /// The server refuses another option.
    #[error("the server refuses {option}{reason}")]
    Refused {
        /// The option.
        option: ClientOption,
        /// The server's explanation, with a colon before it.
        reason: String,
    },
    /// The export is read-only.
    #[error("the export is read-only: swap has to write; start the server without its read-only option")]
    ReadOnly,
    /// The export is smaller than swap needs.
    #[error("the export has {bytes} bytes; swap needs {least} at least: make it larger")]
    TooSmall {
        /// Its bytes.
        bytes: u64,
        /// Bytes that are needed.
        least: u64,
    },
    /// Single pages cannot be read and written.
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
    /// The export holds data of another owner.
    #[error(
        "the export holds something already (its beginning is neither empty nor ours), and nothing was written: name another one, or empty \
         its first 256 KiB if what it holds is not wanted"
    )]
    Foreign,
    /// Another run swaps to the export.
    #[error(
        "the export is in use as swap by somebody else at this moment: each run needs an export of its own"
    )]
    InUse,
    /// This run swaps to the export already.
    #[error("the export is the one of another --swap of this run, under another name: give it once")]
    Twice,
    /// A request failed while the export was being examined.
    #[error("looking at the export fails: {0}")]
    Request(#[from] RequestError),
    /// The export has been replaced.
    #[error("{0}")]
    Replaced(Replaced),
}

/// The difference between an export and the one that was connected before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Replaced {
    /// The size differs.
    #[error("it has {now} bytes now, and had {before}")]
    Size {
        /// Bytes at first.
        before: u64,
        /// Bytes now.
        now: u64,
    },
    /// A feature is missing.
    #[error("it cannot do any more what it could (flags {now:#x}, before {before:#x})")]
    Flags {
        /// The flags at first.
        before: u16,
        /// The flags now.
        now: u16,
    },
    /// The mark is gone: the export is empty, or another one.
    #[error("our mark is not on it: it is empty, or another one")]
    Mark,
    /// The export is in an older state.
    #[error("it is an older state of itself (mark {now}, {before} was confirmed)")]
    Older {
        /// The last confirmed count.
        before: u64,
        /// The count found.
        now: u64,
    },
}

/// The reason why a request failed. The page is lost, or the caller stores it elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The server reports this error, also for repeated attempts.
    #[error("the server reports {}", error_name(*.0))]
    Server(u32),
    /// There was no answer in time.
    #[error("the server does not answer")]
    TimedOut,
    /// There has been no connection for longer than a request may take.
    #[error("the server is away")]
    Away,
    /// The export was replaced, and nothing that was written is there.
    #[error("the export was replaced: {0}")]
    Replaced(Replaced),
    /// The range is outside of the export, not whole blocks, or too long.
    #[error("{length} bytes at {offset} are no whole blocks of the export")]
    Range {
        /// Offset in bytes.
        offset: u64,
        /// Length in bytes.
        length: u64,
    },
    /// The export has no such feature.
    #[error("the export cannot do this")]
    Unsupported,
    /// The client is being stopped.
    #[error("the client ends")]
    Stopped,
    /// The bytes that came back were not the last ones written there: they are damaged, old, or
    /// another page's.
    #[error("what came back is not what was written")]
    Forged,
    /// Nothing was ever written there.
    #[error("nothing was written there")]
    Missing,
    /// The pages lie in a cluster that whoever asks does not own.
    #[error("this cluster is not granted to who asks")]
    NotGranted,
}
