//! Layout of the metadata memory.

use crate::available::AvailableList;
use crate::before::{VariantCpu, VariantShared, needs_state};
use crate::cluster::Cluster;
use crate::cpu::CpuState;
use crate::device::Device;
use crate::entry::DEVICES_MAX;
use crate::frames::{PoolHeader, SECTION_FRAMES, Section};
use crate::lock::SpinLock;
use crate::policy::Policy;
use crate::sync::{AtomicU32, AtomicU64};

/// Alignment of the metadata memory in bytes.
pub const METADATA_ALIGN: usize = 128;

/// Sizes that are fixed when the metadata is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Logical CPUs, at least 1.
    pub cpus: u32,
    /// Clusters of all devices together, growth included, at least 1. Each takes 40 bytes of
    /// metadata.
    pub clusters_max: u32,
    /// Entries of the chunk table, at least 1. Each stands for up to 64 contiguous frames and takes
    /// 24 bytes of metadata.
    pub frame_chunks_max: u32,
}

/// Why the metadata could not be laid out, or not found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigError {
    /// A size of the configuration is zero, or too large to be indexed.
    InvalidConfig,
    /// The memory is smaller than [`bytes_needed`](crate::Slots::bytes_needed).
    MemoryTooSmall,
    /// The memory does not begin at a multiple of [`METADATA_ALIGN`].
    Misaligned,
    /// The memory holds no slots of this payload size, or of a policy with other state.
    NotInitialised,
}

impl core::fmt::Display for ConfigError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str(match self {
            ConfigError::InvalidConfig => "invalid configuration",
            ConfigError::MemoryTooSmall => "metadata memory too small",
            ConfigError::Misaligned => "metadata memory not aligned to 128 bytes",
            ConfigError::NotInitialised => "metadata memory holds no slots of this payload size and policy",
        })
    }
}

impl core::error::Error for ConfigError {}

/// First bytes of the metadata.
#[repr(C, align(128))]
pub(crate) struct Header {
    pub(crate) magic: AtomicU64,
    pub(crate) cpus: AtomicU32,
    pub(crate) clusters_max: AtomicU32,
    pub(crate) frame_chunks_max: AtomicU32,
    pub(crate) payload: AtomicU32,
    /// Size of the metadata. It tells policies with state of their own from those without.
    pub(crate) bytes: AtomicU64,
    /// Serialises swapon, grow and swapoff.
    pub(crate) swap_lock: SpinLock,
    /// Devices that are on.
    pub(crate) devices_on: AtomicU32,
    pub(crate) available: AvailableList,
    pub(crate) pool: PoolHeader,
}

pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"folioslt");

/// Byte offsets of the parts within the metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) devices: usize,
    pub(crate) cpus: usize,
    pub(crate) clusters: usize,
    pub(crate) sections: usize,
    /// State of the policies that need any.
    pub(crate) variant: usize,
    pub(crate) bytes: usize,
}

const fn align_up(bytes: usize) -> usize {
    bytes.next_multiple_of(METADATA_ALIGN)
}

impl Layout {
    pub(crate) const fn new<P: Policy>(config: Config) -> Layout {
        let devices = align_up(size_of::<Header>());
        let cpus = align_up(devices + DEVICES_MAX * size_of::<Device>());
        let clusters = align_up(cpus + config.cpus as usize * size_of::<CpuState>());
        let sections = align_up(clusters + config.clusters_max as usize * size_of::<Cluster>());
        let variant = align_up(sections + config.frame_chunks_max as usize * size_of::<Section>());
        let bytes = if needs_state::<P>() {
            variant + size_of::<VariantShared>() + config.cpus as usize * size_of::<VariantCpu>()
        } else {
            variant
        };
        Layout { devices, cpus, clusters, sections, variant, bytes }
    }
}

impl Config {
    pub(crate) const fn is_valid(&self) -> bool {
        self.cpus > 0
            && self.clusters_max > 0
            && self.clusters_max < u32::MAX
            && self.frame_chunks_max > 0
            && self.frame_chunks_max < u32::MAX / SECTION_FRAMES
    }
}
