//! Metrics as a file, written anew again and again. A reader sees the file as a whole or the one
//! before.

use super::MetricsError;
use std::{fs, io::Write, path::Path, thread, time::Duration};

/// Writes the file until the process is ended.
///
/// # Errors
/// The file cannot be written.
pub fn keep(path: &Path, interval: Duration) -> Result<(), MetricsError> {
    loop {
        write(path, &super::text()).map_err(|source| MetricsError::File { path: path.to_owned(), source })?;
        thread::sleep(interval);
    }
}

fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // The collector reads names that end in .prom.
    let beside = path.with_file_name(format!(".{name}.{}", std::process::id()));
    // Nobody else's link is followed.
    let _ = fs::remove_file(&beside);
    let made = fs::OpenOptions::new().write(true).create_new(true).open(&beside);
    let written = made.and_then(|mut file| file.write_all(text.as_bytes()));
    let renamed = written.and_then(|()| fs::rename(&beside, path));
    if renamed.is_err() {
        let _ = fs::remove_file(&beside);
    }
    renamed
}
