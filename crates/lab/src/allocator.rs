//! A slot allocator in memory of its own.

use crate::memory::Memory;
use folioswap_slots::{CLUSTER_SLOTS, Config, ConfigError, Policy, Slots};

/// Slots of a cluster, as wide as offsets are.
pub(crate) const CLUSTER: u64 = CLUSTER_SLOTS as u64;

/// An allocator of slots without payload, with a frame for each of its clusters.
pub struct Allocator<P: Policy> {
    slots: Slots<0, P>,
    _metadata: Memory,
    _frames: Memory,
}

impl<P: Policy> Allocator<P> {
    /// Makes an allocator for `cpus` logical CPUs and for devices of `clusters` clusters together.
    ///
    /// # Errors
    /// [`ConfigError`] for impossible sizes.
    pub fn new(cpus: u32, clusters: u32) -> Result<Allocator<P>, ConfigError> {
        let config = Config { cpus, clusters_max: clusters, frame_chunks_max: clusters.div_ceil(64) + 1 };
        let metadata = Memory::zeroed(Slots::<0, P>::bytes_needed(config));
        let frames = Memory::zeroed(clusters as usize * Slots::<0, P>::FRAME_BYTES);
        // SAFETY: the memory is fresh and zeroed, and is dropped together with the only handle,
        // which leaves this type by reference only.
        let slots = unsafe { Slots::init(metadata.start(), metadata.bytes(), config)? };
        // SAFETY: as above.
        unsafe { slots.add_frames(frames.start(), frames.bytes()) }
            .map_err(|_| ConfigError::InvalidConfig)?;
        Ok(Allocator { slots, _metadata: metadata, _frames: frames })
    }

    /// The allocator.
    pub fn slots(&self) -> &Slots<0, P> {
        &self.slots
    }
}
