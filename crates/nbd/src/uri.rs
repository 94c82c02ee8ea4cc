//! The address of an export: the NBD project's URI specification (`doc/uri.md`).
//!
//! | URI | Address |
//! |---|---|
//! | `nbd://HOST[:PORT]/[EXPORT]` | TCP; `HOST` a name, an IPv4 or a bracketed IPv6 address |
//! | `nbd+unix:///[EXPORT]?socket=PATH` | a Unix socket |
//! | `nbds://...`, `nbds+unix://...` | the same with TLS |
//!
//! The port is 10809 unless given. With TLS the query may have `tls-certificates=DIR` (with
//! `ca-cert.pem`, and `client-cert.pem` and `client-key.pem` if the server authenticates clients)
//! and `tls-hostname=NAME` (the name in the certificate, if it is not `HOST`), as in libnbd.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The port of NBD.
pub const PORT: u16 = 10809;
/// Most bytes of an export's name (the protocol's own bound).
pub const EXPORT_MAX: usize = 4096;

/// The address of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A name or an address, and a port.
    Tcp {
        /// The host, without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// A socket's path.
    Unix(PathBuf),
}

/// The TLS parameters of a URI.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsNames {
    /// The directory of certificates; `None`: the system's authorities, and no certificate of our
    /// own.
    pub certificates: Option<PathBuf>,
    /// The name in the server's certificate, if it is not the host.
    pub hostname: Option<String>,
}

/// The address of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uri {
    /// The server.
    pub address: Address,
    /// The export's name; empty for the server's default.
    pub export: String,
    /// The parameters of TLS; `None`: no TLS.
    pub tls: Option<TlsNames>,
}

/// The defect of a URI.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UriError {
    /// The scheme is none of NBD.
    #[error("it begins with none of nbd://, nbds://, nbd+unix:// and nbds+unix://")]
    Scheme,
    /// There is no host to connect to.
    #[error("it names no host: write nbd://HOST[:PORT]/EXPORT, or nbd+unix:///EXPORT?socket=PATH")]
    NoHost,
    /// The port is no port number.
    #[error("'{0}' is no port: give a number from 1 to 65535")]
    Port(String),
    /// A Unix socket has no path.
    #[error("it names no socket: write nbd+unix:///EXPORT?socket=PATH")]
    NoSocket,
    /// TCP with the path of a socket, or a Unix socket with a host.
    #[error("a host and a socket exclude each other: nbd:// has a host, nbd+unix:/// has ?socket=PATH")]
    HostAndSocket,
    /// A `%` is not followed by two hexadecimal digits.
    #[error("a % is not followed by two hexadecimal digits: write %25 for a percent sign")]
    Percent,
    /// The decoded bytes are no text.
    #[error("the export's name is not UTF-8")]
    NotText,
    /// The name is too long.
    #[error("the export's name has more than {EXPORT_MAX} bytes")]
    ExportTooLong,
    /// A parameter is unknown, or is given without TLS.
    #[error(
        "'{0}' is no parameter here; there are socket with nbd+unix, and tls-certificates and tls-hostname with nbds"
    )]
    Parameter(String),
    /// TLS over a Unix socket has no host with which to compare the certificate.
    #[error("TLS over a Unix socket needs tls-hostname=NAME: whom the server's certificate must be for")]
    NoHostname,
}

impl Uri {
    /// Parses a URI.
    ///
    /// # Errors
    /// [`UriError`], whose message says how to mend the URI.
    pub fn parse(text: &str) -> Result<Self, UriError> {
        let (scheme, rest) = text.split_once("://").ok_or(UriError::Scheme)?;
        let (has_tls, is_unix) = match scheme {
            "nbd" => (false, false),
            "nbds" => (true, false),
            "nbd+unix" => (false, true),
            "nbds+unix" => (true, true),
            _ => return Err(UriError::Scheme),
        };
        let (target, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, export) = target.split_once('/').unwrap_or((target, ""));
        let export = decode_text(export)?;
        if export.len() > EXPORT_MAX {
            return Err(UriError::ExportTooLong);
        }
        let mut socket = None;
        let mut tls = has_tls.then(TlsNames::default);
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            match (key, &mut tls) {
                ("socket", _) if !is_unix => return Err(UriError::HostAndSocket),
                ("socket", _) => socket = Some(path(decode(value)?)),
                ("tls-certificates", Some(tls)) => tls.certificates = Some(path(decode(value)?)),
                ("tls-hostname", Some(tls)) => tls.hostname = Some(decode_text(value)?),
                _ => return Err(UriError::Parameter(key.to_owned())),
            }
        }
        let address = if is_unix {
            if !authority.is_empty() {
                return Err(UriError::HostAndSocket);
            }
            let socket = socket.filter(|socket: &PathBuf| !socket.as_os_str().is_empty());
            Address::Unix(socket.ok_or(UriError::NoSocket)?)
        } else {
            tcp(authority)?
        };
        if is_unix && tls.as_ref().is_some_and(|tls| tls.hostname.is_none()) {
            return Err(UriError::NoHostname);
        }
        Ok(Uri { address, export, tls })
    }
}

impl fmt::Display for Uri {
    /// The URI without the parameters of TLS, with a percent sign before what would mean something
    /// else, and before what cannot be shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tls = if self.tls.is_some() { "s" } else { "" };
        let export = encode(self.export.as_bytes(), b"?");
        match &self.address {
            Address::Tcp { host, port } => {
                let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
                write!(f, "nbd{tls}://{open}{}{close}", encode(host.as_bytes(), b"/?[]"))?;
                if *port != PORT {
                    write!(f, ":{port}")?;
                }
                write!(f, "/{export}")
            }
            Address::Unix(socket) => {
                let socket = encode(socket.as_os_str().as_bytes(), b"&");
                write!(f, "nbd{tls}+unix:///{export}?socket={socket}")
            }
        }
    }
}

fn tcp(authority: &str) -> Result<Address, UriError> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or(UriError::NoHost)?;
            let port = match after.strip_prefix(':') {
                Some(port) => Some(port),
                None if after.is_empty() => None,
                None => return Err(UriError::Port(after.to_owned())),
            };
            (host, port)
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if host.is_empty() {
        return Err(UriError::NoHost);
    }
    let number = |port: &str| port.parse().ok().filter(|&port: &u16| port != 0);
    let port = match port {
        None | Some("") => PORT,
        Some(port) => number(port).ok_or_else(|| UriError::Port(port.to_owned()))?,
    };
    Ok(Address::Tcp { host: decode_text(host)?, port })
}

fn path(bytes: Vec<u8>) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    std::ffi::OsString::from_vec(bytes).into()
}

/// The inverse of [`decode`]: encodes percent signs, control characters, bytes that are no text,
/// and `others`.
fn encode(bytes: &[u8], others: &[u8]) -> String {
    let mut encoded = String::with_capacity(bytes.len());
    let percent = |encoded: &mut String, bytes: &[u8]| {
        bytes.iter().for_each(|byte| *encoded += &format!("%{byte:02X}"));
    };
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            let is_other = u8::try_from(character).is_ok_and(|byte| others.contains(&byte));
            if is_other || character == '%' || character.is_control() {
                percent(&mut encoded, character.encode_utf8(&mut [0; 4]).as_bytes());
            } else {
                encoded.push(character);
            }
        }
        percent(&mut encoded, chunk.invalid());
    }
    encoded
}

fn decode_text(text: &str) -> Result<String, UriError> {
    String::from_utf8(decode(text)?).map_err(|_| UriError::NotText)
}

fn decode(text: &str) -> Result<Vec<u8>, UriError> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit =
            || bytes.next().and_then(|digit| char::from(digit).to_digit(16)).ok_or(UriError::Percent);
        let (high, low) = (digit()?, digit()?);
        decoded.push((high * 16 + low) as u8);
    }
    Ok(decoded)
}

#[cfg(test)]
mod tests;
