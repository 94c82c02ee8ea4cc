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
    /// Maps the engine's buffers, at the first call; `None` without memory.
    pub(crate) fn of(engine: &Engine) -> Option<&'static mut Buffers> {
        let place = engine.arena.own_mapping(size_of::<Buffers>())?;
        // SAFETY: the memory is fresh, zeroed and page aligned, and stays mapped for ever.
        Some(unsafe { place.cast().as_mut() })
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
