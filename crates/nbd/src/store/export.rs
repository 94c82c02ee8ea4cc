//! An export on its way to a store: examined, then marked, then started.

use super::{FIRST, PAGES_MAX, Store};
use crate::client::{AnyContents, Client, Settings};
use crate::error::ConnectError;
use crate::identity::ExportMark;
use crate::key::KeyError;
use crate::seal::Sealer;
use crate::session::Session;
use crate::tls::Tls;
use crate::uri::Uri;
use crate::wire::ExportFlags;
use folioswap_group::units::{CLUSTER_BYTES, PAGE_SIZE};
use std::sync::Arc;
use std::time::Duration;

/// Longest time of one step of connecting at the start.
const CONNECT_STEP_MAX: Duration = Duration::from_secs(5);

/// Whether pages are encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encryption {
    /// Pages are encrypted under a random key in locked memory.
    Random,
    /// Pages are not encrypted.
    None,
}

/// A suitable export that was examined but not written to.
pub struct Suitable {
    uri: Uri,
    tls: Option<Tls>,
    session: Session,
    encryption: Encryption,
    settings: Settings,
}

impl Suitable {
    /// Connects, and makes sure that the export is suitable.
    ///
    /// # Errors
    /// [`ConnectError`], whose message says what the user can do.
    pub fn new(uri: Uri, encryption: Encryption, settings: Settings) -> Result<Self, ConnectError> {
        if encryption == Encryption::Random {
            // Whether a key is possible is tested now rather than when the program runs.
            Sealer::new([0; 16])?;
        }
        let tls = uri.tls.as_ref().map(|names| Tls::new(&uri, names)).transpose()?;
        let session = Session::connect(&uri, tls.as_ref(), CONNECT_STEP_MAX)?;
        let agreed = &session.agreed;
        let least = FIRST + CLUSTER_BYTES;
        if agreed.flags.has(ExportFlags::READ_ONLY) {
            return Err(ConnectError::ReadOnly);
        }
        if agreed.size < least {
            return Err(ConnectError::TooSmall { bytes: agreed.size, least });
        }
        if agreed.block > PAGE_SIZE as u32 {
            return Err(ConnectError::LargeBlocks(agreed.block));
        }
        if agreed.request_max < (PAGES_MAX * PAGE_SIZE) as u32 {
            return Err(ConnectError::SmallRequests(agreed.request_max));
        }
        Ok(Suitable { uri, tls, session, encryption, settings })
    }

    /// Bytes of the export's slots.
    pub fn bytes(&self) -> u64 {
        self.session.agreed.size - FIRST
    }

    /// Marks the export as this run's.
    ///
    /// # Errors
    /// Those of [`ExportMark::take`].
    pub fn mark(self) -> Result<Prepared, ConnectError> {
        let Suitable { uri, tls, mut session, encryption, settings } = self;
        let mark = ExportMark::take(&mut session)?;
        Ok(Prepared { uri, tls, session, mark, encryption, settings })
    }
}

/// A suitable export that is marked and still connected. It has no thread, so a fork may carry it
/// over.
pub struct Prepared {
    uri: Uri,
    tls: Option<Tls>,
    session: Session,
    mark: ExportMark,
    encryption: Encryption,
    settings: Settings,
}

impl Prepared {
    /// Connects, makes sure that the export is suitable, and marks it. Nothing is written to an
    /// unsuitable export.
    ///
    /// # Errors
    /// [`ConnectError`], whose message says what the user can do.
    pub fn new(uri: Uri, encryption: Encryption, settings: Settings) -> Result<Self, ConnectError> {
        Suitable::new(uri, encryption, settings)?.mark()
    }

    /// Bytes of the export's slots.
    pub fn bytes(&self) -> u64 {
        self.session.agreed.size - FIRST
    }

    /// Whether clusters can be given up.
    pub fn can_trim(&self) -> bool {
        self.session.agreed.flags.has(ExportFlags::TRIM)
    }

    /// The connection's descriptor, which the caller keeps open.
    pub fn descriptor(&self) -> rustix::fd::BorrowedFd<'_> {
        self.session.descriptor()
    }

    /// The export's address.
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Starts the threads and makes the key.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn start(self) -> Result<Arc<Store>, KeyError> {
        let sealer = match self.encryption {
            Encryption::Random => Some(Sealer::new(self.mark.id())?),
            Encryption::None => None,
        };
        let mark = Arc::new(self.mark);
        let known = Arc::clone(&mark);
        let client = Client::start(self.uri, self.tls, self.session, self.settings, known);
        Store::on_export(client, mark, sealer)
    }
}

/// A client of an export whose contents do not matter, for measurements and tests of the protocol
/// alone.
///
/// # Errors
/// [`ConnectError`].
pub fn plain_client(uri: &Uri, settings: Settings) -> Result<Client, ConnectError> {
    let tls = uri.tls.as_ref().map(|names| Tls::new(uri, names)).transpose()?;
    let session = Session::connect(uri, tls.as_ref(), CONNECT_STEP_MAX)?;
    Ok(Client::start(uri.clone(), tls, session, settings, Arc::new(AnyContents)))
}
