//! The messages between a member's pager threads and the process that serves a network device for
//! the group: NBD's own request and simple reply, over `SOCK_SEQPACKET` sockets, each request with
//! its data in one message.
//!
//! | from | message |
//! |---|---|
//! | member | a request of 28 bytes, for a write followed by its pages |
//! | member | [`Command::Attach`] with one end of a socket pair; no answer |
//! | server | to a write, and to every failed request: a reply of 16 bytes |
//! | server | to a read: its pages and nothing else, so that they need no copy into place |
//!
//! `Attach` adds another such socket, for requests that run at the same time. On one socket a read
//! is answered before the next request is made. Writes may follow each other, and are answered in
//! any order. The end of a socket ends only that socket.
//!
//! Source: the NBD project's `doc/proto.md`.

/// Bytes of a request.
pub const REQUEST_BYTES: usize = 28;
/// Bytes of a reply. No number of pages has so many.
pub const REPLY_BYTES: usize = 16;
/// Most bytes of data in one message.
pub const DATA_MAX: usize = 256 << 10;

/// First word of a request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First word of a simple reply.
pub const REPLY_MAGIC: u32 = 0x6744_6698;

/// The command of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Command {
    /// Read pages (`NBD_CMD_READ`).
    Read = 0,
    /// Write pages (`NBD_CMD_WRITE`).
    Write = 1,
    /// Add a further socket. Not part of NBD.
    Attach = 0x8001,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The command.
    pub command: Command,
    /// Returned in the reply.
    pub cookie: u64,
    /// Offset on the device, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub length: u32,
}

/// The bytes of a request of the NBD protocol, by its numbers.
pub fn encode_request(
    flags: u16,
    command: u16,
    cookie: u64,
    offset: u64,
    length: u32,
) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&flags.to_be_bytes());
    bytes[6..8].copy_from_slice(&command.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..24].copy_from_slice(&offset.to_be_bytes());
    bytes[24..].copy_from_slice(&length.to_be_bytes());
    bytes
}

impl Request {
    /// The encoded request.
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let Request { command, cookie, offset, length } = *self;
        encode_request(0, command as u16, cookie, offset, length)
    }

    /// The request with which these bytes begin; `None` if they begin with none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < REQUEST_BYTES || be32(bytes, 0) != REQUEST_MAGIC {
            return None;
        }
        let command = match be32(bytes, 4) {
            0 => Command::Read,
            1 => Command::Write,
            0x8001 => Command::Attach,
            _ => return None,
        };
        Some(Request { command, cookie: be64(bytes, 8), offset: be64(bytes, 16), length: be32(bytes, 24) })
    }
}

/// A reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// 0, or an errno.
    pub error: u32,
    /// The request's cookie.
    pub cookie: u64,
}

impl Reply {
    /// The encoded reply.
    pub fn encode(&self) -> [u8; REPLY_BYTES] {
        let mut bytes = [0; REPLY_BYTES];
        bytes[..4].copy_from_slice(&REPLY_MAGIC.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.error.to_be_bytes());
        bytes[8..].copy_from_slice(&self.cookie.to_be_bytes());
        bytes
    }

    /// The reply in these bytes; `None` if they are none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != REPLY_BYTES || be32(bytes, 0) != REPLY_MAGIC {
            return None;
        }
        Some(Reply { error: be32(bytes, 4), cookie: be64(bytes, 8) })
    }
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from(be32(bytes, at)) << 32 | u64::from(be32(bytes, at + 4))
}

#[cfg(test)]
mod tests;
