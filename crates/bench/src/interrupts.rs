//! SIGINT, SIGTERM and SIGHUP end a comparison only after everything was put back.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

static SEEN: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on notes these signals instead of letting them end the process.
///
/// # Errors
/// A handler cannot be installed.
pub fn watch() -> io::Result<()> {
    let flag = SEEN.get_or_init(Arc::default);
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(flag))?;
    }
    Ok(())
}

/// Whether such a signal has come.
pub fn seen() -> bool {
    SEEN.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}
