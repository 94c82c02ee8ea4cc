//! The numbers and the fixed-size messages of the NBD protocol, without any I/O.
//!
//! Everything is big-endian. Source: the NBD project's `doc/proto.md` (baseline, structured
//! replies, fixed newstyle).

use folioswap_group::swap_link::{REPLY_MAGIC, REQUEST_MAGIC, encode_request};
use std::fmt;

/// First word of a server's greeting, "NBDMAGIC".
pub const MAGIC_GREETING: u64 = 0x4e42_444d_4147_4943;
/// Second word of a greeting, and first of each option, "IHAVEOPT".
pub const MAGIC_OPTION: u64 = 0x4948_4156_454f_5054;
/// First word of an option's reply.
pub const MAGIC_OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
/// First word of a request.
pub const MAGIC_REQUEST: u32 = REQUEST_MAGIC;
/// First word of a simple reply.
pub const MAGIC_SIMPLE: u32 = REPLY_MAGIC;
/// First word of a chunk of a structured reply.
pub const MAGIC_CHUNK: u32 = 0x668e_33ef;

pub use folioswap_group::swap_link::REQUEST_BYTES;
/// Bytes of a simple reply without its data.
pub const SIMPLE_BYTES: usize = 16;
/// Bytes of a chunk's header.
pub const CHUNK_BYTES: usize = 20;
/// Most bytes of the payload of an error chunk that are accepted: number, length of a text of at
/// most 4096 bytes, offset.
pub const ERROR_PAYLOAD_MAX: u32 = 4 + 2 + 4096 + 8;
/// Most bytes of an option's reply that are read.
pub const OPTION_PAYLOAD_MAX: u32 = 64 << 10;

/// Flags of the greeting, and of the client's answer.
pub mod greeting {
    /// Both sides speak the fixed newstyle negotiation.
    pub const FIXED_NEWSTYLE: u16 = 1;
    /// No 124 zeroes follow an export name.
    pub const NO_ZEROES: u16 = 2;
}

/// An option that a client requests during negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ClientOption {
    /// End the negotiation.
    Abort = 2,
    /// Encrypt the connection.
    StartTls = 5,
    /// Choose an export and begin.
    Go = 7,
    /// Replies may come in chunks.
    StructuredReply = 8,
}

impl fmt::Display for ClientOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ClientOption::Abort => "NBD_OPT_ABORT",
            ClientOption::StartTls => "NBD_OPT_STARTTLS",
            ClientOption::Go => "NBD_OPT_GO",
            ClientOption::StructuredReply => "NBD_OPT_STRUCTURED_REPLY",
        })
    }
}

/// Kinds of an option's reply.
pub mod option_reply {
    /// Done.
    pub const ACK: u32 = 1;
    /// A piece of information.
    pub const INFO: u32 = 3;
    /// Set in every error.
    pub const ERROR: u32 = 1 << 31;
    /// Not supported.
    pub const UNSUPPORTED: u32 = ERROR | 1;
    /// Not allowed.
    pub const POLICY: u32 = ERROR | 2;
    /// TLS is required first.
    pub const TLS_REQUIRED: u32 = ERROR | 5;
    /// No such export.
    pub const UNKNOWN: u32 = ERROR | 6;
    /// The server is shutting down.
    pub const SHUTDOWN: u32 = ERROR | 7;
}

/// Kinds of information about an export.
pub mod information {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// The canonical name.
    pub const NAME: u16 = 1;
    /// Block sizes.
    pub const BLOCK_SIZE: u16 = 3;
}

/// The features of an export (transmission flags).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportFlags(pub u16);

impl ExportFlags {
    /// Nothing may be written.
    pub const READ_ONLY: ExportFlags = ExportFlags(1 << 1);
    /// The server supports flush.
    pub const FLUSH: ExportFlags = ExportFlags(1 << 2);
    /// The server supports FUA.
    pub const FUA: ExportFlags = ExportFlags(1 << 3);
    /// The server supports trim.
    pub const TRIM: ExportFlags = ExportFlags(1 << 5);
    /// The server supports write-zeroes.
    pub const WRITE_ZEROES: ExportFlags = ExportFlags(1 << 6);
    /// Several connections see the same data.
    pub const MULTI_CONN: ExportFlags = ExportFlags(1 << 8);

    /// Whether all of these flags are set.
    pub const fn has(self, flags: ExportFlags) -> bool {
        self.0 & flags.0 == flags.0
    }
}

/// The command of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Command {
    /// Read bytes.
    Read = 0,
    /// Write bytes.
    Write = 1,
    /// End the connection; has no reply.
    Disconnect = 2,
    /// When it is answered, all writes answered before are on stable storage.
    Flush = 3,
    /// The bytes are no longer needed.
    Trim = 4,
    /// The bytes become zeroes.
    WriteZeroes = 6,
}

/// Flags of a request.
///
/// DF, by which the data of a reply come in one chunk, is not among them: nbd-server offers it and
/// refuses every read that carries it with EINVAL (3.25 to 3.27.1, `handle_request`).
pub mod command_flags {
    /// The write is on stable storage when it is answered.
    pub const FUA: u16 = 1;
}

/// A request without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// [`command_flags`].
    pub flags: u16,
    /// The command.
    pub command: Command,
    /// Identifies the reply; unique among the requests under way.
    pub cookie: u64,
    /// Offset in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub length: u32,
}

impl Request {
    /// The encoded request.
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let Request { flags, command, cookie, offset, length } = *self;
        encode_request(flags, command as u16, cookie, offset, length)
    }
}

/// A violation of the protocol by the server. The connection cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The server does not begin with the greeting of the fixed newstyle.
    #[error("it does not greet like an NBD server with fixed newstyle negotiation")]
    Greeting,
    /// A reply does not begin with its magic number.
    #[error("a reply begins with {0:#x}, which is no reply")]
    Magic(u32),
    /// An option's reply does not begin with its magic number, or is for another option.
    #[error("an answer to another question than {0}")]
    OptionReply(ClientOption),
    /// A message is longer than any that is expected.
    #[error("{what} of {bytes} bytes, which is too long")]
    TooLong {
        /// The message.
        what: &'static str,
        /// Its length.
        bytes: u32,
    },
    /// A message is shorter or longer than its kind allows.
    #[error("{what} of {bytes} bytes, which it cannot have")]
    Length {
        /// The message.
        what: &'static str,
        /// Its length.
        bytes: u32,
    },
    /// A reply to a request that is not under way.
    #[error("a reply to request {0}, which was never sent or is answered already")]
    Cookie(u64),
    /// Data for a request without data, or outside of the request, or a second time.
    #[error("data at {offset} of {bytes} bytes, which was not asked for or came already")]
    Data {
        /// Offset in bytes.
        offset: u64,
        /// Length in bytes.
        bytes: u32,
    },
    /// A reply ends without all of its data.
    #[error("a reply of {missing} bytes less than asked for")]
    Incomplete {
        /// Bytes that are missing.
        missing: u32,
    },
    /// A chunk that this client did not ask for and cannot skip.
    #[error("a chunk of kind {0}, which was not asked for")]
    Chunk(u16),
    /// A simple reply with data where replies are structured, or the reverse.
    #[error("a kind of reply that was not agreed upon")]
    Style,
    /// An error chunk that says that there is no error.
    #[error("an error without a number")]
    NoError,
    /// The export's description is missing.
    #[error("it does not say how large the export is")]
    NoSize,
    /// Block sizes that no export can have.
    #[error("block sizes of {minimum}, {preferred} and at most {maximum} bytes, which no export can have")]
    BlockSizes {
        /// As sent.
        minimum: u32,
        /// As sent.
        preferred: u32,
        /// As sent.
        maximum: u32,
    },
}

/// The beginning of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyHeader {
    /// A complete reply, except for the data of a read without an error.
    Simple {
        /// 0, or an errno by the protocol's numbers.
        error: u32,
        /// The request's cookie.
        cookie: u64,
    },
    /// The first 16 bytes of a chunk; its length follows.
    Chunk {
        /// The chunk is the last one of its reply.
        done: bool,
        /// [`ChunkKind`] as a number.
        kind: u16,
        /// The request's cookie.
        cookie: u64,
    },
}

impl ReplyHeader {
    /// Decodes the first [`SIMPLE_BYTES`] of a reply.
    ///
    /// # Errors
    /// [`ProtocolError::Magic`].
    pub fn decode(bytes: &[u8; SIMPLE_BYTES]) -> Result<Self, ProtocolError> {
        let magic = be32(&bytes[..4]);
        let cookie = be64(&bytes[8..16]);
        match magic {
            MAGIC_SIMPLE => Ok(ReplyHeader::Simple { error: be32(&bytes[4..8]), cookie }),
            MAGIC_CHUNK => {
                Ok(ReplyHeader::Chunk { done: be16(&bytes[4..6]) & 1 != 0, kind: be16(&bytes[6..8]), cookie })
            }
            other => Err(ProtocolError::Magic(other)),
        }
    }
}

/// Kinds of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkKind {
    /// No contents; the chunk only ends a reply.
    None,
    /// An offset and data.
    Data,
    /// An offset and a length of zeroes.
    Hole,
    /// Errors, with or without an offset, and unknown kinds of errors.
    Error,
}

impl ChunkKind {
    /// The kind for a number. Every kind with the highest bit is an error, known or not.
    ///
    /// # Errors
    /// [`ProtocolError::Chunk`].
    pub const fn from_number(kind: u16) -> Result<Self, ProtocolError> {
        match kind {
            0 => Ok(ChunkKind::None),
            1 => Ok(ChunkKind::Data),
            2 => Ok(ChunkKind::Hole),
            _ if kind >> 15 == 1 => Ok(ChunkKind::Error),
            other => Err(ProtocolError::Chunk(other)),
        }
    }
}

/// Encodes an option with its data.
pub fn encode_option(option: ClientOption, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16 + data.len());
    bytes.extend(MAGIC_OPTION.to_be_bytes());
    bytes.extend((option as u32).to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

/// The data of `NBD_OPT_GO`: an export's name and the requested information.
pub fn encode_go(export: &str) -> Vec<u8> {
    let wanted = [information::NAME, information::BLOCK_SIZE];
    let mut data = Vec::with_capacity(6 + export.len() + 4);
    data.extend((export.len() as u32).to_be_bytes());
    data.extend(export.as_bytes());
    data.extend((wanted.len() as u16).to_be_bytes());
    wanted.iter().for_each(|wanted| data.extend(wanted.to_be_bytes()));
    data
}

/// The header of an option's reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionReply {
    /// [`option_reply`].
    pub kind: u32,
    /// Bytes that follow.
    pub length: u32,
}

impl OptionReply {
    /// Bytes of the header.
    pub const BYTES: usize = 20;

    /// Decodes a header that answers `option`.
    ///
    /// # Errors
    /// [`ProtocolError::OptionReply`], [`ProtocolError::TooLong`].
    pub fn decode(bytes: &[u8; Self::BYTES], option: ClientOption) -> Result<Self, ProtocolError> {
        if be64(&bytes[..8]) != MAGIC_OPTION_REPLY || be32(&bytes[8..12]) != option as u32 {
            return Err(ProtocolError::OptionReply(option));
        }
        let length = be32(&bytes[16..20]);
        if length > OPTION_PAYLOAD_MAX {
            return Err(ProtocolError::TooLong { what: "an option's answer", bytes: length });
        }
        Ok(OptionReply { kind: be32(&bytes[12..16]), length })
    }
}

/// The server's information about an export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportInformation {
    /// Bytes of the export.
    pub size: Option<u64>,
    /// Features of the export.
    pub flags: ExportFlags,
    /// Fewest and most bytes of a request, if the server sends them.
    pub blocks: Option<(u32, u32)>,
    /// The canonical name, if the server sends it.
    pub name: Option<String>,
}

impl ExportInformation {
    /// Takes in one piece of information.
    ///
    /// # Errors
    /// [`ProtocolError::Length`], [`ProtocolError::BlockSizes`].
    pub fn take(&mut self, payload: &[u8]) -> Result<(), ProtocolError> {
        let wrong = || ProtocolError::Length { what: "information", bytes: payload.len() as u32 };
        if payload.len() < 2 {
            return Err(wrong());
        }
        let (kind, body) = (be16(payload), &payload[2..]);
        match kind {
            information::EXPORT if body.len() == 10 => {
                self.size = Some(be64(body));
                self.flags = ExportFlags(be16(&body[8..]));
            }
            information::BLOCK_SIZE if body.len() == 12 => {
                let (minimum, preferred, maximum) = (be32(body), be32(&body[4..]), be32(&body[8..]));
                let fits = minimum.is_power_of_two()
                    && minimum <= 64 << 10
                    && preferred >= minimum
                    && maximum >= minimum;
                if !fits {
                    return Err(ProtocolError::BlockSizes { minimum, preferred, maximum });
                }
                self.blocks = Some((minimum, maximum));
            }
            information::EXPORT | information::BLOCK_SIZE => return Err(wrong()),
            information::NAME => self.name = Some(String::from_utf8_lossy(body).into_owned()),
            _ => {}
        }
        Ok(())
    }
}

/// The name of an error that a server reports, by the protocol's numbers (which are Linux's).
pub fn error_name(error: u32) -> &'static str {
    match error {
        1 => "EPERM",
        5 => "EIO",
        12 => "ENOMEM",
        22 => "EINVAL",
        28 => "ENOSPC",
        75 => "EOVERFLOW",
        95 => "ENOTSUP",
        108 => "ESHUTDOWN",
        _ => "an unknown error",
    }
}

pub(crate) fn be16(bytes: &[u8]) -> u16 {
    u16::from_be_bytes([bytes[0], bytes[1]])
}

pub(crate) fn be32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

pub(crate) fn be64(bytes: &[u8]) -> u64 {
    u64::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]])
}

#[cfg(test)]
mod tests;
