//! Trace files.

use crate::build::Recorder;
use folioswap_trace::{
    Encoder, Event, HEADER_BYTES, Header, HeaderError, PushError, RECORD_BYTES, Record, RecordError,
};
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// A whole trace in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// Ticks and CPUs.
    pub header: Header,
    /// In the order of the file.
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
        /// Why.
        source: io::Error,
    },
    /// Its first bytes.
    #[error("{}: {source}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// Why.
        source: HeaderError,
    },
    /// One of its records.
    #[error("{}: record {number} is damaged: {source}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// From 1 on.
        number: usize,
        /// Why.
        source: RecordError,
    },
    /// Its last record is not whole.
    #[error(
        "{}: cut off after {whole} whole records ({left} bytes more): was its writer killed? `head -c {keep} FILE > WHOLE` keeps what is whole",
        path.display()
    )]
    CutOff {
        /// The file.
        path: PathBuf,
        /// Whole records.
        whole: usize,
        /// Bytes behind them.
        left: usize,
        /// Bytes that are whole.
        keep: usize,
    },
    /// A CPU that the header does not have.
    #[error("{}: record {number} names logical CPU {cpu}, but the trace says that it has {cpus}", path.display())]
    Cpu {
        /// The file.
        path: PathBuf,
        /// From 1 on.
        number: usize,
        /// As recorded.
        cpu: u16,
        /// Of the header.
        cpus: u32,
    },
    /// Nothing to do.
    #[error("{}: the trace has no allocations", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// Logical CPU of an event, if it has one.
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
    /// [`TraceError`] for the first thing that is wrong.
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
    /// [`TraceError`] for the first thing that is wrong.
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

/// Collects records in memory, `steps_per_tick` steps of the workload to a tick.
#[derive(Debug)]
pub struct Collector {
    /// So far.
    pub records: Vec<Record>,
    /// At least 1.
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
    /// Creates the file with its header.
    ///
    /// # Errors
    /// As of the file.
    pub fn create(path: &Path, header: &Header, steps_per_tick: u64) -> io::Result<Writer> {
        let mut file = BufWriter::with_capacity(1 << 16, File::create(path)?);
        file.write_all(&header.encode())?;
        Ok(Writer { file, steps_per_tick: steps_per_tick.max(1), written: 0, failed: None })
    }

    /// Writes what is left and says how many records there are.
    ///
    /// # Errors
    /// The first that came up since the start.
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
