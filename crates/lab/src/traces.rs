//! Trace files.

use crate::build::Recorder;
use folioswap_trace::{
    BadDetails, DETAILS_BYTES, Details, Event, HEADER_BYTES, Header, HeaderError, Layout, RECORD_BYTES,
    Record, RecordError,
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
    /// The details of each record; empty for a trace of version 1.
    pub details: Vec<Details>,
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
    /// The details of a record are damaged.
    #[error("{}: the details of record {number} are damaged: {source}", path.display())]
    Details {
        /// The file.
        path: PathBuf,
        /// The record's number, from 1 on.
        number: usize,
        /// The reason.
        source: BadDetails,
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
    /// A trace without details.
    pub fn plain(header: Header, records: Vec<Record>) -> Trace {
        Trace { header, records, details: Vec::new() }
    }

    /// The allocations of one memory group, and what becomes of their slots. A failed allocation
    /// has no group in the text of a kernel, so fallbacks stay if an allocation of the group
    /// follows on the same CPU.
    #[must_use]
    pub fn of_group(&self, group: u16) -> Trace {
        let mut held = std::collections::HashSet::new();
        let mut fallbacks: Vec<usize> = Vec::new();
        let mut kept: Vec<usize> = Vec::new();
        for (index, record) in self.records.iter().enumerate() {
            match record.event {
                Event::Fallback { .. } => fallbacks.push(index),
                Event::Alloc { cpu, order, entry } => {
                    let slots = entry..entry + (1 << order);
                    let ours = self.details.get(index).is_some_and(|details| details.group == group);
                    let same_cpu = |at: &usize| cpu_of(&self.records[*at].event) == Some(cpu);
                    if ours {
                        kept.extend(fallbacks.iter().copied().filter(same_cpu));
                        kept.push(index);
                        held.extend(slots);
                    } else {
                        slots.for_each(|slot| {
                            held.remove(&slot);
                        });
                    }
                    fallbacks.retain(|at| !same_cpu(at));
                }
                Event::Free { slots, entry, .. } => {
                    let all = entry..entry + u64::from(slots);
                    if all.fold(false, |any, slot| held.remove(&slot) | any) {
                        kept.push(index);
                    }
                }
                Event::Retain { entry, .. } | Event::Reuse { entry, .. } if !held.contains(&entry) => {}
                _ => kept.push(index),
            }
        }
        kept.sort_unstable();
        Trace {
            header: self.header,
            records: kept.iter().map(|index| self.records[*index]).collect(),
            details: kept.iter().filter_map(|index| self.details.get(*index).copied()).collect(),
        }
    }

    /// What follows the header in a file of this trace.
    pub fn layout(&self) -> Layout {
        if self.details.is_empty() { Layout::Plain } else { Layout::Detailed }
    }

    /// Writes the trace into a file.
    ///
    /// # Errors
    /// The error of the file, or a record that has no encoding.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut file = BufWriter::with_capacity(1 << 16, File::create(path)?);
        file.write_all(&self.header.encode_as(self.layout()))?;
        for (index, record) in self.records.iter().enumerate() {
            file.write_all(&record.encode().map_err(io::Error::other)?)?;
            if let Some(details) = self.details.get(index) {
                file.write_all(&details.encode())?;
            }
        }
        file.flush()
    }

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
        let (header, layout) =
            Header::decode_any(bytes).map_err(|source| TraceError::Header { path: path(), source })?;
        let chunks = bytes[HEADER_BYTES..].chunks_exact(layout.record_bytes());
        let (count, rest) = (chunks.len(), chunks.remainder());
        let mut records = Vec::with_capacity(count);
        let mut details = Vec::new();
        for (index, chunk) in chunks.enumerate() {
            let number = index + 1;
            let (first, second) = chunk.split_first_chunk::<RECORD_BYTES>().expect("a whole record");
            let record = Record::decode(first).map_err(|source| TraceError::Record {
                path: path(),
                number,
                source,
            })?;
            if let Some(second) = second.first_chunk::<DETAILS_BYTES>() {
                let decoded = Details::decode(second);
                let bad = |source| TraceError::Details { path: path(), number, source };
                details.push(decoded.map_err(bad)?);
            }
            if let Some(cpu) = cpu_of(&record.event).filter(|cpu| u32::from(*cpu) >= header.cpus) {
                return Err(TraceError::Cpu { path: path(), number, cpu, cpus: header.cpus });
            }
            records.push(record);
        }
        if !rest.is_empty() {
            let whole = count;
            let keep = HEADER_BYTES + whole * layout.record_bytes();
            return Err(TraceError::CutOff { path: path(), whole, left: rest.len(), keep });
        }
        if !records.iter().any(|record| matches!(record.event, Event::Alloc { .. } | Event::Fallback { .. }))
        {
            return Err(TraceError::Empty { path: path() });
        }
        Ok(Trace { header, records, details })
    }
}

/// Collects records in memory; `steps_per_tick` steps of the workload make a tick.
#[derive(Debug)]
pub struct Collector {
    /// The records so far.
    pub records: Vec<Record>,
    /// The details of each.
    pub details: Vec<Details>,
    /// Steps in a tick, at least 1.
    pub steps_per_tick: u64,
}

impl Recorder for Collector {
    fn record(&mut self, steps: u64, event: Event, details: Details) {
        self.records.push(Record { tick: steps / self.steps_per_tick, event });
        self.details.push(details);
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
        file.write_all(&header.encode_as(Layout::Detailed))?;
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

    fn push(&mut self, record: &Record, details: &Details) -> io::Result<()> {
        self.file.write_all(&record.encode().map_err(io::Error::other)?)?;
        self.file.write_all(&details.encode())
    }
}

impl Recorder for Writer {
    fn record(&mut self, steps: u64, event: Event, details: Details) {
        if self.failed.is_some() {
            return;
        }
        match self.push(&Record { tick: steps / self.steps_per_tick, event }, &details) {
            Ok(()) => self.written += 1,
            Err(error) => self.failed = Some(error),
        }
    }
}
