//! Records into a buffer that the caller supplies and writes out.

use crate::{RECORD_BYTES, Record, RecordError};

/// Why a record was not added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushError {
    /// The buffer has no room for another record: write out what [`Encoder::finish`] gives and begin again.
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
    /// Begins at the start of `buffer`; what is behind the last whole record stays unused.
    pub fn new(buffer: &'a mut [u8]) -> Self {
        Encoder { buffer, used: 0 }
    }

    /// Adds a record.
    ///
    /// # Errors
    /// [`PushError`]; the buffer is as before.
    pub fn push(&mut self, record: &Record) -> Result<(), PushError> {
        let place = self.buffer.get_mut(self.used..self.used + RECORD_BYTES);
        let place = place.ok_or(PushError::Full)?;
        place.copy_from_slice(&record.encode().map_err(PushError::Record)?);
        self.used += RECORD_BYTES;
        Ok(())
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// The bytes of the records so far.
    pub fn finish(self) -> &'a [u8] {
        &self.buffer[..self.used]
    }
}
