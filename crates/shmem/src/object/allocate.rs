//! Allocating pages ahead of need (fallocate).

use super::find::Obtained;
use super::{ObjectOf, end_of, index_of};
use crate::error::ShmemError;
use crate::frames::PAGE;
use crate::sync::write_lock;
use crate::variant::Variant;

/// Effect on the object's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// It stays (FALLOC_FL_KEEP_SIZE).
    KeepSize,
    /// It grows to the end of the range.
    Extend,
}

impl<V: Variant> ObjectOf<V> {
    /// Makes sure that every page of a range of bytes exists; new ones are zeroes.
    ///
    /// # Errors
    /// [`ShmemError`]; the pages that it had made are freed again, and the size is as before. A
    /// range that can never have a place as a whole is refused before anything is done.
    pub fn allocate(&self, offset: u64, len: u64, size: Allocation) -> Result<(), ShmemError> {
        let end = end_of(offset, len)?;
        self.space.check_range(offset, end)?;
        let _alone = write_lock(&self.inner.content);
        self.allocate_alone(offset, end)?;
        if size == Allocation::Extend {
            self.grow_to(end);
        }
        Ok(())
    }

    /// Makes a range of bytes zeroes, with all its pages allocated (FALLOC_FL_ZERO_RANGE).
    ///
    /// # Errors
    /// [`ShmemError`]; a part of the range may be zeroed then.
    pub fn zero_range(&self, offset: u64, len: u64, size: Allocation) -> Result<(), ShmemError> {
        let end = end_of(offset, len)?;
        self.space.check_range(offset, end)?;
        let _alone = write_lock(&self.inner.content);
        self.punch(offset, end)?;
        self.allocate_alone(offset, end)?;
        if size == Allocation::Extend {
            self.grow_to(end);
        }
        Ok(())
    }

    fn allocate_alone(&self, offset: u64, end: u64) -> Result<(), ShmemError> {
        let page = PAGE as u64;
        let mut made = Vec::new();
        let mut at = offset / page * page;
        let range = at..end;
        while at < end {
            if let Some(found) = self.inner.map.get(index_of(at)) {
                let pages = u64::from(found.order.slots());
                at = ((index_of(at) & !(pages - 1)) + pages) * page;
                continue;
            }
            match self.existing_or_new(index_of(at), range.clone(), at..at) {
                Ok(Obtained::Existing(held)) => at = held.end(),
                Ok(Obtained::New(held)) => {
                    made.push(held.index..held.index + u64::from(held.order.slots()));
                    at = held.end();
                }
                Err(error) => {
                    made.into_iter().for_each(|pages| self.remove_pages(pages.start, pages.end));
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}
