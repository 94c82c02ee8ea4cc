//! Reading: copied, or lent.

use super::ObjectOf;
use super::find::{Held, Hold};
use super::index_of;
use crate::error::ShmemError;
use crate::frames::PAGE;
use crate::map::Look;
use crate::variant::Variant;

/// Bytes that holes are lent from.
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

/// A range of an object, held for reading: until this is dropped, its folios stay where they are
/// and no thread writes to them.
///
/// To be dropped soon. Until then its thread must not write to, truncate, punch or allocate any
/// object, not only this one: a writer waits for the folio's holder, and two threads that copy in
/// opposite directions would wait for each other for ever. Copies go through a buffer.
pub struct Lent<'o> {
    pieces: Vec<Piece<'o>>,
    len: usize,
}

enum Piece<'o> {
    Folio { held: Held<'o>, offset: u64, end: u64 },
    Zeroes(usize),
}

impl Lent<'_> {
    /// The bytes, in order.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().map(|piece| match piece {
            Piece::Folio { held, offset, end } => held.bytes(*offset, *end),
            Piece::Zeroes(len) => &ZEROES[..*len],
        })
    }
    /// Number of bytes in all.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<V: Variant> ObjectOf<V> {
    /// Copies bytes from `offset` on into `into`. Returns their number, which is smaller than the
    /// buffer's at the object's end. Holes are zeroes.
    ///
    /// # Errors
    /// [`ShmemError::Io`]; [`ShmemError::NoSpace`] if a page is swapped out and there is no room to
    /// bring it back.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize, ShmemError> {
        let mut done = 0;
        self.read_with(offset, into.len(), |piece| {
            into[done..done + piece.len()].copy_from_slice(piece);
            done += piece.len();
        })
    }

    /// Lends the bytes from `offset` on, up to `len` of them, piece by piece, without a copy;
    /// returns their number. Each piece is held while `lend` has it, which must not write to,
    /// truncate, punch or allocate any object meanwhile: see [`Lent`].
    ///
    /// # Errors
    /// As [`read`](Self::read); bytes lent before the error are right.
    pub fn read_with(
        &self,
        offset: u64,
        len: usize,
        mut lend: impl FnMut(&[u8]),
    ) -> Result<usize, ShmemError> {
        self.each_piece(offset, len, |piece| match &piece {
            Piece::Folio { held, offset, end } => lend(held.bytes(*offset, *end)),
            Piece::Zeroes(len) => lend(&ZEROES[..*len]),
        })
    }

    /// Lends the bytes from `offset` on, up to `len` of them, all at once (for writev(2)).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn lend(&self, offset: u64, len: usize) -> Result<Lent<'_>, ShmemError> {
        let mut pieces = Vec::new();
        let len = self.each_piece(offset, len, |piece| pieces.push(piece))?;
        Ok(Lent { pieces, len })
    }

    fn each_piece<'o>(
        &'o self,
        offset: u64,
        len: usize,
        mut each: impl FnMut(Piece<'o>),
    ) -> Result<usize, ShmemError> {
        let end = self.size().min(offset.saturating_add(len as u64));
        let mut at = offset;
        while at < end {
            let index = index_of(at);
            if let Some(held) = self.existing(index, Hold::Shared, end.div_ceil(PAGE as u64) - index)? {
                let to = held.end().min(end);
                each(Piece::Folio { held, offset: at, end: to });
                at = to;
                continue;
            }
            let next = self.inner.map.next(index, Look::Present).map_or(u64::MAX, |(first, _)| first);
            // At least this page is a hole, or was at the last look.
            let hole = next.max(index + 1).saturating_mul(PAGE as u64).min(end);
            while at < hole {
                let step = (hole - at).min(ZEROES.len() as u64);
                each(Piece::Zeroes(step as usize));
                at += step;
            }
        }
        Ok(at.saturating_sub(offset) as usize)
    }
}
