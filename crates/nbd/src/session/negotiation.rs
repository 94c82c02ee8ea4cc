//! The fixed newstyle negotiation.

use super::{Agreed, REQUEST_MAX};
use crate::error::ConnectError;
use crate::reply::ReplyStyle;
use crate::wire::{
    ClientOption, ExportInformation, MAGIC_GREETING, MAGIC_OPTION, OptionReply, ProtocolError, be16, be64,
    encode_go, encode_option, greeting, option_reply,
};
use std::io::{self, Read, Write};

/// Answers to one option, at most.
const ANSWERS_MAX: usize = 64;

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

/// Asks for TLS; what follows goes through it.
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
    use crate::wire::ExportFlags;

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
