//! The evictor's view of the process: its size, its mappings, its growth and its idleness.

use crate::engine::due::Due;
use crate::evict::announced::Announced;
use crate::kernel::proc::ProcessSize;
use crate::kernel::sys;

/// Bytes of a file of `/proc` that are read at a time.
const TEXT_BYTES: usize = 16 << 10;

/// The last measurements, and when the next are due.
pub(crate) struct Survey {
    /// Room for the text of a file of `/proc`.
    pub(crate) text: [u8; TEXT_BYTES],
    pub(crate) size: ProcessSize,
    /// Writable address space when the mappings were looked at last, in bytes.
    pub(crate) scanned_size: u64,
    pub(crate) scan_next_ns: u64,
    /// Looks at the mappings in a row that found nothing new.
    pub(crate) scans_in_vain: u32,
    /// The time until which the program counts as growing.
    pub(crate) growing_until_ns: u64,
    pub(crate) slow_due: Due,
    /// Bytes in the compressed store when its figures were published last.
    pub(crate) stored_seen: u64,
    pub(crate) epoch_due: Due,
    /// Resident shared memory of the program, in bytes.
    pub(crate) shmem: u64,
    /// Shared and file memory when shared memory was measured last.
    pub(crate) shared_seen: u64,
    pub(crate) announced: Announced,
    /// Minor faults of the program and its pager.
    pub(crate) minor_faults_seen: u64,
    /// Those of the program's own threads.
    pub(crate) program_faults_seen: u64,
    pub(crate) idle_since_ns: u64,
    pub(crate) faults_seen: u64,
    /// The time at which an embedder's resident pages are counted anew.
    pub(crate) count_next_ns: u64,
}

impl Survey {
    pub(crate) fn new() -> Self {
        Survey {
            text: [0; TEXT_BYTES],
            size: ProcessSize::default(),
            scanned_size: 0,
            scan_next_ns: 0,
            scans_in_vain: 0,
            growing_until_ns: 0,
            slow_due: Due::at_once(),
            stored_seen: 0,
            epoch_due: Due::at_once(),
            shmem: 0,
            shared_seen: 0,
            announced: Announced::default(),
            minor_faults_seen: 0,
            program_faults_seen: 0,
            idle_since_ns: sys::now_ns(),
            faults_seen: 0,
            count_next_ns: 0,
        }
    }

    /// For how long the process has done nothing at `now_ns`, in nanoseconds.
    pub(crate) fn idle_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.idle_since_ns)
    }
}

/// When memory that relatives share is measured.
pub(crate) struct SharingSurvey {
    pub(crate) next_ns: u64,
    /// The earliest time for a measurement out of turn.
    pub(crate) soonest_ns: u64,
    /// Forks of this process at the last measurement.
    pub(crate) forks: u32,
    pub(crate) ask_to_measure_due: Due,
}

impl SharingSurvey {
    pub(crate) const fn new() -> Self {
        SharingSurvey { next_ns: 0, soonest_ns: 0, forks: 0, ask_to_measure_due: Due::at_once() }
    }
}
