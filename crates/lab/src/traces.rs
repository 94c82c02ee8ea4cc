//! Trace files.

use crate::build::Recorder;
use folioswap_trace::{
    Encoder, Event, HEADER_BYTES, Header, HeaderError, PushError, RECORD_BYTES, Record, RecordError,
};
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

// A record covers at most a cluster, whose size the format fixes.
const _: () = assert!(folioswap_trace::SLOTS_MAX as u32 == folioswap_slots::CLUSTER_SLOTS);

/// A whole trace in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// Length of a tick, and number of CPUs.
    pub header: Header,
    /// The records in the order of the file.
    pub records: Vec<Record>,
}

/// Why a file is not a trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// It cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The header is not that of a trace.
    #[error("{}: {source}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: HeaderError,
    },
    /// A record is damaged.
    #[error("{}: record {number} is damaged: {source}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// The record's number, from 1 on.
        number: usize,
        /// The reason.
        source: RecordError,
    },
    /// The last record is incomplete.
    #[error(
        "{}: cut off after {whole} whole records ({left} bytes more): was its writer killed? `head -c {keep} FILE > WHOLE` keeps what is whole",
        path.display()
    )]
    CutOff {
        /// The file.
        path: PathBuf,
        /// Number of complete records.
        whole: usize,
        /// Bytes behind the last complete record.
        left: usize,
        /// Bytes up to the end of the last complete record.
        keep: usize,
    },
    /// A record names a CPU that the header does not have.
    #[error("{}: record {number} names logical CPU {cpu}, but the trace says that it has {cpus}", path.display())]
    Cpu {
        /// The file.
        path: PathBuf,
        /// The record's number, from 1 on.
        number: usize,
        /// The recorded CPU.
        cpu: u16,
        /// Number of CPUs in the header.
        cpus: u32,
    },
    /// The trace has no allocations.
    #[error("{}: the trace has no allocations", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// The logical CPU of an event, if it has one.
pub(crate) fn cpu_of(event: &Event) -> Option<u16> {
    match *event {
        Event::Alloc { cpu, .. }
        | Event::Fallback { cpu, .. }
        | Event::Free { cpu, .. }
        | Event::Retain { cpu, .. }
        | Event::Reuse { cpu, .. } => Some(cpu),
        Event::Member { .. } | Event::End { .. } | Event::Fork { .. } => None,
    }
}

impl Trace {
    /// Reads a file.
    ///
    /// # Errors
    /// [`TraceError`] for the first error in the file.
    pub fn read(path: &Path) -> Result<Trace, TraceError> {
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|mut file| file.read_to_end(&mut bytes))
            .map_err(|source| TraceError::File { path: path.to_owned(), source })?;
        Trace::parse(path, &bytes)
    }

    /// Parses bytes that came from `path`.
    ///
    /// # Errors
    /// [`TraceError`] for the first error in the bytes.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Trace, TraceError> {
        let path = || path.to_owned();
        let header = Header::decode(bytes).map_err(|source| TraceError::Header { path: path(), source })?;
        let (chunks, rest) = bytes[HEADER_BYTES..].as_chunks::<RECORD_BYTES>();
        let mut records = Vec::with_capacity(chunks.len());
        for (index, chunk) in chunks.iter().enumerate() {
            let number = index + 1;
            let record = Record::decode(chunk).map_err(|source| TraceError::Record {
                path: path(),
                number,
                source,
            })?;
            if let Some(cpu) = cpu_of(&record.event).filter(|cpu| u32::from(*cpu) >= header.cpus) {
                return Err(TraceError::Cpu { path: path(), number, cpu, cpus: header.cpus });
            }
            records.push(record);
        }
        if !rest.is_empty() {
            let whole = chunks.len();
            let keep = HEADER_BYTES + whole * RECORD_BYTES;
            return Err(TraceError::CutOff { path: path(), whole, left: rest.len(), keep });
        }
        if !records.iter().any(|record| matches!(record.event, Event::Alloc { .. } | Event::Fallback { .. }))
        {
            return Err(TraceError::Empty { path: path() });
        }
        Ok(Trace { header, records })
    }
}

/// Collects records in memory; `steps_per_tick` steps of the workload make a tick.
#[derive(Debug)]
pub struct Collector {
    /// The records so far.
    pub records: Vec<Record>,
    /// Steps in a tick, at least 1.
    pub steps_per_tick: u64,
}

impl Recorder for Collector {
    fn record(&mut self, steps: u64, event: Event) {
        self.records.push(Record { tick: steps / self.steps_per_tick, event });
    }
}

/// Writes records to a file as they come.
pub struct Writer {
    file: BufWriter<File>,
    steps_per_tick: u64,
    written: u64,
    failed: Option<io::Error>,
}

impl Writer {
    /// Creates the file and writes its header.
    ///
    /// # Errors
    /// The error of the file.
    pub fn create(path: &Path, header: &Header, steps_per_tick: u64) -> io::Result<Writer> {
        let mut file = BufWriter::with_capacity(1 << 16, File::create(path)?);
        file.write_all(&header.encode())?;
        Ok(Writer { file, steps_per_tick: steps_per_tick.max(1), written: 0, failed: None })
    }

    /// Writes the rest and returns the number of records.
    ///
    /// # Errors
    /// The first error since the start.
    pub fn finish(mut self) -> io::Result<u64> {
        match self.failed.take() {
            Some(error) => Err(error),
            None => self.file.flush().map(|()| self.written),
        }
    }

    fn push(&mut self, record: &Record) -> io::Result<()> {
        let mut buffer = [0; RECORD_BYTES];
        let mut encoder = Encoder::new(&mut buffer);
        encoder.push(record).map_err(|error| match error {
            PushError::Record(error) => io::Error::other(error),
            PushError::Full => io::Error::other("a record larger than itself"),
        })?;
        self.file.write_all(encoder.finish())
    }
}

impl Recorder for Writer {
    fn record(&mut self, steps: u64, event: Event) {
        if self.failed.is_some() {
            return;
        }
        match self.push(&Record { tick: steps / self.steps_per_tick, event }) {
            Ok(()) => self.written += 1,
            Err(error) => self.failed = Some(error),
        }
    }
}
