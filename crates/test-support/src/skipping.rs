//! A test that cannot run here says so and counts as skipped, not as passed.

use std::io::Write;

/// Notes a skipped test: prints `SKIP: reason`, and appends a line to the file that
/// `$FOLIOSWAP_SKIP_FILE` names, from which `scripts/test.sh` makes its sum. The test then
/// returns.
pub fn note(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("?");
    println!("SKIP: {reason}");
    append(&format!("SKIP {test}: {reason}"));
}

/// Notes that a part of a test was left out. The test itself still counts as passed or failed.
pub fn note_part(reason: &str) {
    let thread = std::thread::current();
    println!("NOTE: {reason}");
    append(&format!("NOTE {}: {reason}", thread.name().unwrap_or("?")));
}

fn append(line: &str) {
    let Some(path) = std::env::var_os("FOLIOSWAP_SKIP_FILE") else { return };
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    if let Err(error) = file.and_then(|mut file| writeln!(file, "{line}")) {
        panic!("FOLIOSWAP_SKIP_FILE cannot be written: {error}");
    }
}
