//! Packs records into a buffer that the caller supplies and writes out.

use crate::{RECORD_BYTES, Record, RecordError};

/// Why a record was not added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushError {
    /// The buffer is full: write out the bytes that [`Encoder::finish`] returns and begin again.
    Full,
    /// The record has no encoding.
    Record(RecordError),
}

/// Fills a buffer with records, without heap and without system calls.
#[derive(Debug)]
pub struct Encoder<'a> {
    buffer: &'a mut [u8],
    used: usize,
}

impl<'a> Encoder<'a> {
    /// Begins at the start of `buffer`. Bytes behind the last whole record stay unused.
    pub fn new(buffer: &'a mut [u8]) -> Self {
        Encoder { buffer, used: 0 }
    }

    /// Adds a record.
    ///
    /// # Errors
    /// [`PushError`]; the buffer is unchanged.
    pub fn push(&mut self, record: &Record) -> Result<(), PushError> {
        let target = self.buffer.get_mut(self.used..self.used + RECORD_BYTES);
        let target = target.ok_or(PushError::Full)?;
        target.copy_from_slice(&record.encode().map_err(PushError::Record)?);
        self.used += RECORD_BYTES;
        Ok(())
    }

    /// Whether no record was added yet.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Returns the bytes of the records added so far.
    pub fn finish(self) -> &'a [u8] {
        &self.buffer[..self.used]
    }
}
