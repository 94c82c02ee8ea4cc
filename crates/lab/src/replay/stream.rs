//! Prepares a trace while it is read from its file, so that no more than the operations is ever in
//! memory: 16 bytes each.

use super::prepare::{Preparation, Prepared, Retention, TooManyClusters};
use crate::traces::{TraceError, cpu_of};
use folioswap_trace::{
    Cause, DETAILS_BYTES, Details, Event, HEADER_BYTES, Header, Layout, RECORD_BYTES, Record,
};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

/// Why a file was not prepared for a replay.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The file is no trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The trace is too large.
    #[error(transparent)]
    TooManyClusters(#[from] TooManyClusters),
}

impl Prepared {
    /// Prepares the trace in a file. The result is that of [`Prepared::new`] with the whole trace.
    /// Cost: one pass over the file.
    ///
    /// # Errors
    /// [`PrepareError`], for the first error in the file.
    pub fn read(path: &Path, retention: Retention) -> Result<Prepared, PrepareError> {
        let failed = |source| TraceError::File { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len() as usize;
        let mut file = BufReader::with_capacity(1 << 16, file);
        let mut head = Vec::new();
        file.by_ref().take(HEADER_BYTES as u64).read_to_end(&mut head).map_err(failed)?;
        let (header, layout) = Header::decode_any(&head)
            .map_err(|source| TraceError::Header { path: path.to_owned(), source })?;
        let record_bytes = layout.record_bytes();
        let mut preparation = Preparation::new(bytes / record_bytes, retention);
        let (mut member, mut number, mut has_allocations) = (0, 0, false);
        loop {
            let (mut chunk, mut behind) = ([0; RECORD_BYTES], [0; DETAILS_BYTES]);
            let mut read = read_up_to(&mut file, &mut chunk).map_err(failed)?;
            if layout == Layout::Detailed {
                read += read_up_to(&mut file, &mut behind).map_err(failed)?;
            }
            if read < record_bytes {
                let keep = HEADER_BYTES + number * record_bytes;
                if read > 0 {
                    let path = path.to_owned();
                    return Err(TraceError::CutOff { path, whole: number, left: read, keep }.into());
                }
                break;
            }
            number += 1;
            let record = Record::decode(&chunk).map_err(|source| TraceError::Record {
                path: path.to_owned(),
                number,
                source,
            })?;
            let cause = match layout {
                Layout::Plain => Cause::Unknown,
                Layout::Detailed => {
                    let decoded = Details::decode(&behind);
                    let bad = |source| TraceError::Details { path: path.to_owned(), number, source };
                    decoded.map_err(bad)?.cause
                }
            };
            if let Some(cpu) = cpu_of(&record.event).filter(|cpu| u32::from(*cpu) >= header.cpus) {
                let (path, cpus) = (path.to_owned(), header.cpus);
                return Err(TraceError::Cpu { path, number, cpu, cpus }.into());
            }
            has_allocations |= matches!(record.event, Event::Alloc { .. } | Event::Fallback { .. });
            preparation.add_for(cause, &mut member, &record)?;
        }
        if !has_allocations {
            return Err(TraceError::Empty { path: path.to_owned() }.into());
        }
        Ok(preparation.finish(&header))
    }
}

/// Fills `bytes` as far as the file goes; returns the number read.
fn read_up_to(file: &mut impl Read, bytes: &mut [u8]) -> std::io::Result<usize> {
    let mut read = 0;
    while read < bytes.len() {
        match file.read(&mut bytes[read..]) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}
