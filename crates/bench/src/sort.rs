//! GNU sort, a program that was not made to be measured: the text that it sorts, and one run of it.

use crate::touch::Timing;
use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, BufWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Bytes of a line, newline included.
pub const LINE: u64 = 53;

/// The most lines: a line's number has seven digits.
pub const LINES_MAX: u64 = 10_000_000;

/// The directory of the text.
const DIRECTORY: &str = "/var/tmp";

/// The options of sort.
#[derive(Clone, Debug)]
pub struct Options {
    /// The file to sort.
    pub input: PathBuf,
    /// `--parallel`: threads.
    pub parallel: u32,
    /// `-S`: bytes that sort may use before it writes to temporary files.
    pub buffer: u64,
}

/// Different lines in no order, in a file without a name: nothing is left behind, however the
/// process that holds it ends.
pub struct Text {
    file: File,
}

impl Text {
    /// Writes `lines` lines, at most [`LINES_MAX`] and the same ones each time. Cost: about half a
    /// second per million.
    ///
    /// # Errors
    /// The directory for temporary files does not support files without a name, or is full.
    pub fn new(lines: u64) -> io::Result<Text> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_TMPFILE)
            .mode(0o600)
            .open(DIRECTORY)?;
        let mut out = BufWriter::with_capacity(1 << 20, &mut file);
        write_lines(&mut out, lines)?;
        out.flush()?;
        drop(out);
        Ok(Text { file })
    }

    /// A path of the file, valid as long as this process has it open.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()))
    }
}

fn write_lines(out: &mut impl Write, lines: u64) -> io::Result<()> {
    let mut word = 1u64;
    for number in 0..lines.min(LINES_MAX) {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        writeln!(out, "{word:016x} line {number:07} of the file {:010}", word as u32)?;
    }
    Ok(())
}

/// Why a run of sort gave no figures.
#[derive(Debug, thiserror::Error)]
pub enum SortError {
    /// It cannot be started: it is not installed, for example.
    #[error("sort cannot be run: {0}")]
    Start(io::Error),
    /// Its output cannot be read.
    #[error("the output of sort: {0}")]
    Output(io::Error),
    /// It was killed.
    #[error("sort was ended by signal {0}")]
    Killed(i32),
    /// It ended with an error of its own.
    #[error("sort ended with status {0}")]
    Failed(i32),
}

/// Runs `sort --parallel=N -S SIZE` in the C locale and reads its output through a pipe, so that no
/// page cache comes in. The timing (phase `sort`) has a checksum of the output.
///
/// # Errors
/// [`SortError`].
pub fn sort(options: &Options) -> Result<Timing, SortError> {
    let begin = Instant::now();
    let mut command = Command::new("sort");
    command.arg(format!("--parallel={}", options.parallel)).arg(format!("-S{}b", options.buffer));
    command.arg(&options.input).env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::piped());
    // SAFETY: between fork and exec the closure only calls prctl(2), with numbers.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
    let mut child = command.spawn().map_err(SortError::Start)?;
    let output = child.stdout.take().map_or(Ok((0, 0)), checksum);
    let status = child.wait().map_err(SortError::Output)?;
    let seconds = begin.elapsed().as_secs_f64();
    if let Some(signal) = status.signal() {
        return Err(SortError::Killed(signal));
    }
    if !status.success() {
        return Err(SortError::Failed(status.code().unwrap_or(-1)));
    }
    let (sum, bytes) = output.map_err(SortError::Output)?;
    Ok(Timing {
        phase: "sort".to_owned(),
        seconds,
        mb_per_s: bytes as f64 / 1e6 / seconds,
        output: Some(format!("{sum:016x}")),
        ..Timing::default()
    })
}

/// A checksum of all that can be read, and the number of bytes. Its 64 bits tell outputs apart;
/// they are not for keeping, because another build may compute others.
fn checksum(mut from: impl Read) -> io::Result<(u64, u64)> {
    let (mut hasher, mut block) = (DefaultHasher::new(), vec![0; 1 << 16]);
    let mut bytes = 0;
    loop {
        // Every block but the last is filled, however the pipe cuts the data: the sum may depend on
        // where blocks end.
        let mut filled = 0;
        while filled < block.len() {
            match from.read(&mut block[filled..]) {
                Ok(0) => break,
                Ok(more) => filled += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        hasher.write(&block[..filled]);
        bytes += filled as u64;
        if filled < block.len() {
            return Ok((hasher.finish(), bytes));
        }
    }
}

/// Whether a program of this name is in `$PATH`.
pub fn is_installed(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|directory| directory.join(name)).any(|file| Path::new(&file).is_file())
}

#[cfg(test)]
mod tests;
