//! Zeroed memory and an allocator that lives in it.

use folioswap_slots::{Config, ConfigError, Policy, Slots};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Zeroed memory at a page border, freed at the end of its scope. Pages that are never touched cost nothing.
#[derive(Debug)]
pub struct Memory {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: owns plain memory.
unsafe impl Send for Memory {}
// SAFETY: as for `Send`; nothing is read or written through a shared reference.
unsafe impl Sync for Memory {}

impl Memory {
    /// At least `bytes` bytes.
    ///
    /// # Panics
    /// When the system has no memory.
    pub fn zeroed(bytes: usize) -> Memory {
        let layout = Layout::from_size_align(bytes.max(1), 4096).expect("far below the address space");
        // SAFETY: the size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        Memory { start, layout }
    }

    /// First byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Length.
    pub fn bytes(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// An allocator of slots without payload, with a frame for each of its clusters.
pub struct Engine<P: Policy> {
    slots: Slots<0, P>,
    _metadata: Memory,
    _frames: Memory,
}

impl<P: Policy> Engine<P> {
    /// For `cpus` logical CPUs and devices of `clusters` clusters together.
    ///
    /// # Errors
    /// [`ConfigError`] for sizes that cannot be.
    pub fn new(cpus: u32, clusters: u32) -> Result<Engine<P>, ConfigError> {
        let config = Config { cpus, clusters_max: clusters, frame_chunks_max: clusters.div_ceil(64) + 1 };
        let metadata = Memory::zeroed(Slots::<0, P>::bytes_needed(config));
        let frames = Memory::zeroed(clusters as usize * Slots::<0, P>::FRAME_BYTES);
        // SAFETY: fresh zeroed memory that is dropped together with the only handle that leaves this type by reference.
        let slots = unsafe { Slots::init(metadata.start(), metadata.bytes(), config)? };
        // SAFETY: as above.
        unsafe { slots.add_frames(frames.start(), frames.bytes()) }
            .map_err(|_| ConfigError::InvalidConfig)?;
        Ok(Engine { slots, _metadata: metadata, _frames: frames })
    }

    /// The allocator.
    pub fn slots(&self) -> &Slots<0, P> {
        &self.slots
    }
}
