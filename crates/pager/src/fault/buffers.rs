//! The handler's buffers: one for the pages that come back, one of zeroes, and the decoder that
//! expands stored pages.

use crate::engine::Engine;
use crate::units::PIECE_PAGES;
use folioswap_devices::Page;
use folioswap_devices::zstd::Decoder;

/// Page-aligned buffers of the handler, for pages that come back and for zeroes.
#[repr(C, align(4096))]
pub(crate) struct Buffers {
    pages: [Page; PIECE_PAGES],
    zeroes: [Page; PIECE_PAGES],
    pub(crate) decoder: Decoder,
}

impl Buffers {
    /// The engine's buffers, mapped at the first call; `None` without memory. A forked child's
    /// handler goes on with the copy that it inherits: buffers for each generation would use the
    /// arena up.
    pub(crate) fn of(engine: &Engine) -> Option<&'static mut Buffers> {
        let mut place = engine.arena.room(&engine.workspaces.buffers)?;
        // SAFETY: all-zero buffers are valid; they are the handler's alone, of which an engine has
        // one, and stay mapped for ever.
        Some(unsafe { place.as_mut() })
    }

    pub(crate) fn page(&mut self, index: usize) -> &mut Page {
        &mut self.pages[index]
    }
    /// A page, and the decoder that expands a stored page into it.
    pub(crate) fn page_to_read(&mut self, index: usize) -> (&mut Decoder, &mut Page) {
        (&mut self.decoder, &mut self.pages[index])
    }
    pub(crate) fn pages(&mut self, first: usize, count: usize) -> &mut [Page] {
        &mut self.pages[first..first + count]
    }
    pub(crate) fn zeroes(&self) -> *const u8 {
        self.zeroes.as_ptr().cast()
    }
}
