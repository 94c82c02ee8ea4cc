//! Writing.

use super::find::Obtained;
use super::{ObjectOf, end_of, index_of};
use crate::error::ShmemError;
use crate::frames::PAGE;
use crate::sync::read_lock;
use crate::variant::Variant;

impl<V: Variant> ObjectOf<V> {
    /// Copies `bytes` to `offset`; the object grows if they end behind its end. Returns the number
    /// of bytes written: fewer only where space ran out on the way.
    ///
    /// # Errors
    /// [`ShmemError`]; nothing was written then.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<usize, ShmemError> {
        let end = end_of(offset, bytes.len() as u64)?;
        let _writing = read_lock(&self.inner.content);
        let mut at = offset;
        while at < end {
            match self.existing_or_new(index_of(at), offset..end, at..end) {
                Ok(Obtained::Existing(mut held) | Obtained::New(mut held)) => {
                    let to = held.end().min(end);
                    let from = &bytes[(at - offset) as usize..(to - offset) as usize];
                    held.bytes_mut(at, to).copy_from_slice(from);
                    at = to;
                }
                Err(error) if at == offset => return Err(error),
                Err(_) => break,
            }
            self.grow_to(at);
        }
        Ok((at - offset) as usize)
    }

    /// Zeroes the existing part of a range within one page. The caller holds `content` for writing.
    pub(super) fn zero_within_page(&self, from: u64, to: u64) -> Result<(), ShmemError> {
        debug_assert!(to - from <= PAGE as u64);
        if from < to
            && let Some(mut held) = self.existing(index_of(from), super::find::Hold::Exclusive, 1)?
        {
            held.bytes_mut(from, to).fill(0);
        }
        Ok(())
    }
}
