//! The fixed newstyle negotiation.

use super::{Agreed, REQUEST_MAX};
use crate::error::ConnectError;
use crate::reply::ReplyStyle;
use crate::wire::{
    ClientOption, ExportInformation, MAGIC_GREETING, MAGIC_OPTION, OptionReply, ProtocolError, be16, be64,
    encode_go, encode_option, greeting, option_reply,
};
use std::io::{self, Read, Write};

/// Most answers to one option.
const ANSWERS_MAX: usize = 64;

/// Reads the server's greeting and answers it.
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

/// Asks for TLS. All that follows goes through it.
pub(super) fn start_tls(server: &mut (impl Read + Write)) -> Result<(), ConnectError> {
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

/// A server's explanation of a refusal, without control characters and shortened, so that it can be
/// shown.
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

/// For fuzzing: a whole negotiation with a server that sends these bytes, whatever it receives.
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
mod tests;
