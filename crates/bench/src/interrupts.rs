//! SIGINT, SIGTERM and SIGHUP end a comparison after everything was put back.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

static SEEN: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on these signals are noted instead of ending the process.
///
/// # Errors
/// When a handler cannot be installed.
pub fn watch() -> io::Result<()> {
    let flag = SEEN.get_or_init(Arc::default);
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(flag))?;
    }
    Ok(())
}

/// Was there one?
pub fn seen() -> bool {
    SEEN.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}
