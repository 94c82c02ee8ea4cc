//! A device of the group is taken out of use while it runs (swapoff, spec §0): each member moves
//! its pages elsewhere, and lets the device go.
//!
//! The decisions say which device leaves. From then on no thread chooses it for a write
//! (`evict/tiers.rs`), and pages that come back from it keep no copy there (`clean.rs`). The
//! evictor, under the gate, goes over the entries in use and moves those that lie there: to the
//! other devices, and where these have no space, to the compressed store. When nothing is left,
//! this process's clusters go back, shared ones as well, because the supervisor has been told of
//! all forks until then. When no process has any, the supervisor says that the device is off, and
//! each member closes it.
//!
//! A device that was added (swapon) is asked for, and used by its priority from then on.
//!
//! The handler reads runs of slots without locking each location. The evictor therefore exchanges
//! locations while the handler is outside of its rounds, and discards the pages that the handler
//! has read ahead.

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

/// How often the handler is asked to make way, and the nanoseconds between two requests.
const ASKED: u32 = 30;

const ASKED_NS: i64 = 100_000;

impl Engine {
    /// Asks the supervisor for the descriptor of a device that was added to the group.
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

    /// Writes the pages that were read, and have no new location yet, to one of `devices`:
    /// together, or in smaller units.
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

    /// Takes the handler's lock for the evictor: waits for a read from a disk, but not for a
    /// handler that waits for memory.
    pub(crate) fn have_handler_outside(&self) -> Option<Guard<'_>> {
        (0..ASKED).find_map(|_| {
            self.handler_outside().or_else(|| {
                let _ = nanosleep(&Timespec { tv_sec: 0, tv_nsec: ASKED_NS });
                None
            })
        })
    }
}
