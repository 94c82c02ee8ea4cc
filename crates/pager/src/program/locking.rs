//! mlockall(2) with MCL_CURRENT: the program's memory is locked, and none of the engine's. The
//! kernel would lock the compressed store and make all that is mapped for it resident, which is
//! more than the limit, and the memories of the group, 13 MiB that are charged to no process.

use crate::engine::Engine;
use crate::engine::descriptors;
use crate::engine::holds::Populate;
use crate::kernel::maps::{self, MappingKind};
use crate::kernel::ranges::Range;
use crate::kernel::sys;
use crate::units::ADDRESS_END;
use folioswap_group::protocol::ProcFile;
use linux_raw_sys::general as raw;
use rustix::fd::AsFd;
use rustix::io::Errno;

/// When locked memory becomes resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residence {
    /// All of it now.
    Now,
    /// Each page when it is touched (MCL_ONFAULT).
    OnFault,
}

/// The reason why the memory was not locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockError {
    /// The mappings cannot be listed here: the kernel must be asked to lock all.
    NoList,
    /// The kernel refused to lock a mapping. Those before it stay locked.
    Refused(Errno),
}

impl Engine {
    /// Locks what the program has mapped. Memory that was away comes back, as far as the limit
    /// allows; where it does not, the evictor finds a standstill. Threads of the program.
    ///
    /// # Errors
    /// [`LockError`].
    pub fn lock_program(&self, residence: Residence) -> Result<(), LockError> {
        let list = descriptors::open(ProcFile::Maps).map_err(|_| LockError::NoList)?;
        let mut buffer = [0; 8 << 10];
        let mut locked = Ok(());
        maps::read(list.as_fd(), &mut buffer, |mapping| {
            self.for_program_parts(mapping.start, mapping.end, |part| {
                if locked.is_ok() {
                    locked = lock_on_fault(part);
                }
            });
        })
        .map_err(|_| LockError::NoList)?;
        locked.map_err(LockError::Refused)?;
        if residence == Residence::Now {
            // As with the kernel, memory that cannot come in is no error.
            let _ = maps::read(list.as_fd(), &mut buffer, |mapping| {
                let how = match mapping.kind {
                    MappingKind::Anonymous => Populate::Write,
                    MappingKind::File | MappingKind::Other => Populate::Read,
                    MappingKind::Reserved => return,
                };
                self.for_program_parts(mapping.start, mapping.end, |part| {
                    let _ = self.populate(part.start, part.end, how);
                });
            });
        }
        Ok(())
    }

    /// Calls `each` with the parts of a mapping that are neither the engine's own nor the group's.
    fn for_program_parts(&self, start: usize, end: usize, each: impl FnMut(Range)) {
        let is_of_group = |memory: Range| memory.start <= start && end <= memory.end;
        if !self.memories_of_group().into_iter().any(is_of_group) {
            self.arena.for_gaps(start, end.min(ADDRESS_END), each);
        }
    }
}

/// Locks a range without making it resident.
fn lock_on_fault(part: Range) -> Result<(), Errno> {
    let call = |number, last: u32| {
        // SAFETY: neither locking nor asking changes contents.
        unsafe { sys::syscall(number, [part.start, part.end - part.start, last as usize, 0, 0, 0]) }
    };
    match call(raw::__NR_mlock2, raw::MLOCK_ONFAULT) {
        // More than this user may lock, or unmapped by another thread since it was listed. msync
        // has the same error for the latter alone.
        Err(Errno::NOMEM) if call(raw::__NR_msync, raw::MS_ASYNC) == Err(Errno::NOMEM) => Ok(()),
        result => result.map(drop),
    }
}
