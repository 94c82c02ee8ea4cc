//! TLS for a connection whose two directions are used by two threads.
//!
//! The state of both directions is one object behind a lock. The lock is never held while the
//! socket blocks, so a waiting reader keeps no writer from sending.

use crate::error::ConnectError;
use crate::uri::{Address, TlsNames, Uri};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The files of trusted authorities on Debian, Ubuntu, Alpine and Arch; on Fedora and RHEL; and on
/// SUSE.
const SYSTEM_AUTHORITIES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem"];
/// Bytes that are read from the socket at a time: a TLS record and its header.
const RECORD: usize = (16 << 10) + 512;

/// The TLS configuration of a connection, read once.
#[derive(Clone, Debug)]
pub struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Tls {
    /// Reads the certificates.
    ///
    /// # Errors
    /// [`ConnectError::Certificates`], [`ConnectError::Hostname`], [`ConnectError::Tls`].
    pub fn new(uri: &Uri, names: &TlsNames) -> Result<Self, ConnectError> {
        let host = match (&names.hostname, &uri.address) {
            (Some(name), _) => name.clone(),
            (None, Address::Tcp { host, .. }) => host.clone(),
            (None, Address::Unix(_)) => String::new(),
        };
        let name = ServerName::try_from(host.clone()).map_err(|_| ConnectError::Hostname(host))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(ConnectError::Tls)?
            .with_root_certificates(authorities(names.certificates.as_deref())?);
        let own = names.certificates.as_deref().map(|directory| directory.join("client-cert.pem"));
        let config = match own.filter(|path| path.exists()) {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let certificates = read_certificates(&path)?;
                let key = path.with_file_name("client-key.pem");
                let private = PrivateKeyDer::from_pem_file(&key)
                    .map_err(|error| ConnectError::Certificates { path: key, reason: error.to_string() })?;
                builder.with_client_auth_cert(certificates, private).map_err(ConnectError::Tls)?
            }
        };
        Ok(Tls { config: Arc::new(config), name })
    }

    /// Encrypts a connection from now on. Blocks until the handshake is done.
    ///
    /// # Errors
    /// [`ConnectError::Tls`], [`ConnectError::Broken`].
    pub fn begin(&self, socket: &mut (impl Read + Write)) -> Result<ClientConnection, ConnectError> {
        let mut connection =
            ClientConnection::new(Arc::clone(&self.config), self.name.clone()).map_err(ConnectError::Tls)?;
        while connection.is_handshaking() {
            if let Err(error) = connection.complete_io(socket) {
                return Err(match error.downcast::<rustls::Error>() {
                    Ok(error) => ConnectError::Tls(error),
                    Err(error) => ConnectError::Broken(error),
                });
            }
        }
        Ok(connection)
    }
}

fn authorities(directory: Option<&Path>) -> Result<RootCertStore, ConnectError> {
    let path = match directory {
        Some(directory) => directory.join("ca-cert.pem"),
        None => {
            let files = SYSTEM_AUTHORITIES.iter().map(PathBuf::from);
            files.clone().find(|path| path.exists()).or(files.clone().next()).unwrap_or_default()
        }
    };
    let mut roots = RootCertStore::empty();
    // Some of the system's certificates may be in a form that is not understood; every certificate
    // in a directory of the user's must be.
    let (added, _) = roots.add_parsable_certificates(read_certificates(&path)?);
    if added == 0 {
        let reason = "there is no certificate of an authority in it".to_owned();
        return Err(ConnectError::Certificates { path, reason });
    }
    Ok(roots)
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ConnectError> {
    let wrong = |reason| ConnectError::Certificates { path: path.to_owned(), reason };
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| wrong(error.to_string()))
}

/// The TLS state that both directions share.
type State = Arc<Mutex<ClientConnection>>;

/// The reading direction.
pub struct TlsReader<S> {
    state: State,
    socket: S,
    record: Box<[u8; RECORD]>,
    /// The bytes of `record` that came from the socket and have not been processed.
    start: usize,
    end: usize,
}

/// The writing direction.
pub struct TlsWriter<S> {
    state: State,
    socket: S,
    records: Vec<u8>,
}

/// Divides a connection into its two directions.
pub fn split<S>(connection: ClientConnection, reads: S, writes: S) -> (TlsReader<S>, TlsWriter<S>) {
    let state = Arc::new(Mutex::new(connection));
    let reader = TlsReader {
        state: Arc::clone(&state),
        socket: reads,
        record: Box::new([0; RECORD]),
        start: 0,
        end: 0,
    };
    (reader, TlsWriter { state, socket: writes, records: Vec::new() })
}

impl<S: Read> Read for TlsReader<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            // Decrypted data is read first: the library takes no further records while it holds
            // more than one.
            match state.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
            if self.start < self.end {
                let mut rest = &self.record[self.start..self.end];
                let taken = state.read_tls(&mut rest)?;
                if taken == 0 {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                self.start += taken;
                state.process_new_packets().map_err(io::Error::other)?;
                continue;
            }
            drop(state);
            let count = self.socket.read(&mut self.record[..])?;
            if count == 0 {
                return Ok(0);
            }
            (self.start, self.end) = (0, count);
        }
    }
}

impl<S: Write> Write for TlsWriter<S> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.records.clear();
        let taken = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let taken = state.writer().write(buffer)?;
            while state.wants_write() {
                state.write_tls(&mut self.records)?;
            }
            taken
        };
        self.socket.write_all(&self.records)?;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}
