//! A device of the group is taken out of use while it runs (swapoff, spec §0): each member moves what it has there elsewhere, and lets it go.
//!
//! The supervisor says in the segment which device leaves. From then on nobody chooses it for a write (`tiers.rs`), what comes back from it
//! keeps no copy there (`clean.rs`), and the evictor, under the gate, goes over the entries in use and moves those that lie there: to the other devices, and where
//! there is no room, to the compressed store. When nothing is left, this process's clusters go back, shared ones as well: all forks that there were
//! until then have been told of. When nobody has any, the supervisor says that the device is off, and each member closes it.
//!
//! A device that was added (swapon) is asked for, and used by its priority from then on.
//!
//! The handler reads runs of slots without locking each location: locations are exchanged while it is outside of its rounds, and what it reads
//! ahead is forgotten.

use crate::engine::{Engine, link};
use crate::kernel::futex::Guard;
use crate::store::demote::{DemotionUnits, RUN_PAGES};
use crate::store::write_back::Stuck;
use core::sync::atomic::Ordering::Relaxed;
use folioswap_devices::Page;
use folioswap_group::protocol::{Ending, Kind, Message};
use folioswap_slots::{DeviceId, DeviceMask};
use folioswap_space::space::WriteError;
use folioswap_space::swapoff::Leaving;
use rustix::thread::{Timespec, nanosleep};

/// Times that the handler is asked to make way, and between two of them.
const ASKED: u32 = 30;

const ASKED_NS: i64 = 100_000;

impl Engine {
    /// The descriptor of a device that was added to the group.
    pub(crate) fn device(&self, id: DeviceId) -> Option<i32> {
        let control = self.descriptors.control.load(Relaxed);
        let request = Message::new(Kind::WantDevice, [id.index() as u64, 0, 0]);
        match link::send(control, &request, None).and_then(|()| link::receive(control)) {
            Ok((answer, came)) if answer.kind() == Some(Kind::Device) => {
                (answer.words[0] == 1 && came[0] >= 0).then_some(came[0])
            }
            _ => self.end(Ending::NoClusters, None),
        }
    }

    /// Writes what was read, and has no place yet, to one of `devices`: together, or in pieces.
    pub(crate) fn store_leaving_on(
        &self,
        pages: &mut Leaving,
        run: &[Page],
        devices: DeviceMask,
        pieces: DemotionUnits,
    ) -> Result<(), Stuck> {
        let mut piece = RUN_PAGES;
        while let Some(first) = (0..pages.len()).find(|&index| pages.is_read(index)) {
            let range = first..pages.len().min(first + piece);
            match self.space.store_leaving_on(pages, range.clone(), &run[range.clone()], devices) {
                Ok(()) => {}
                Err(WriteError::NoSlots | WriteError::OrderNotTaken)
                    if pieces == DemotionUnits::Any && range.len() > 1 =>
                {
                    piece = (range.len() / 4).max(1);
                }
                Err(error) => {
                    self.tell_of_failure(error);
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }

    /// The handler's lock, for the evictor: it waits for a read from a disk, but not for a handler that waits for memory.
    pub(crate) fn have_handler_outside(&self) -> Option<Guard<'_>> {
        (0..ASKED).find_map(|_| {
            self.handler_outside().or_else(|| {
                let _ = nanosleep(&Timespec { tv_sec: 0, tv_nsec: ASKED_NS });
                None
            })
        })
    }
}
