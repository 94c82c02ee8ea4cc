//! Holds inside a program: a call that uses nothing managed has no slot, and no call holds more
//! than is named.

use super::{Call, HAZARDS, Hold, WITH_STACK};
use crate::hazard::{ADDRESSES_END, PAGE, Pages, Room, SlotIndex};
use crate::hooks::{self, Managed, Run};
use crate::inside;
use crate::slot::Frame;
use crate::table::{Access, Operand};
use core::cell::Cell;

/// Pages between two ranges that are held as one where a call has no further range, inside a
/// program.
const BESIDE: u64 = 16;

/// Whether no call needs a look: nothing is managed, or this is a forked child, whose parent has
/// it.
pub(crate) fn nothing_is_managed() -> bool {
    hooks::MANAGED.get().is_none_or(|managed| {
        let Run { managed, end } = managed(0);
        managed == Managed::No && end >= ADDRESSES_END / PAGE
    })
}

/// Holds what a call uses of managed memory.
pub(super) fn hold(frame: &mut Frame, managed: fn(u64) -> Run, known: Option<&[Operand]>) {
    let [number, arguments @ ..] = frame.saved;
    let here = &raw const *frame as u64;
    let call = Call { managed, slot: Cell::new(None), waits: Some(frame), held: Cell::new(0), here };
    if let Ok(stack) = Pages::around(here - PAGE, PAGE + size_of::<Frame>() as u64) {
        call.publish(stack);
        call.touch(stack, Access::Both);
    }
    call.all(number as u32, known, &arguments);
}

impl Call {
    /// The slot, which inside a program is lent to the call now.
    fn slot(&self) -> Option<SlotIndex> {
        if let (None, Some(frame)) = (self.slot.get(), self.waits) {
            // SAFETY: the frame of this call, which nobody else uses.
            let frame = unsafe { &mut *frame };
            if frame.hold == Hold::Nothing {
                self.slot.set(HAZARDS.borrow(WITH_STACK, inside::hint(self.here)));
                match self.slot.get() {
                    Some(lent) => {
                        inside::lent(lent, frame);
                        frame.hold = Hold::Lent(lent);
                    }
                    None => {
                        HAZARDS.join_crowd();
                        frame.hold = Hold::Crowd;
                    }
                }
            }
        }
        self.slot.get()
    }

    /// Inside a program: publishes pages if some are managed. Where that would take more memory
    /// than there is, or the call has no further range, nothing is held: the kernel says EFAULT.
    pub(super) fn publish_inside(&self, pages: Pages) -> Room {
        // What is managed does not change during a call there.
        if !self.are_managed(pages) {
            return Room::Yes;
        }
        let held = self.held.get() + (pages.end() - pages.first()) * PAGE;
        if held > inside::held_most() {
            return Room::No;
        }
        self.held.set(held);
        self.slot().map_or(Room::Yes, |slot| HAZARDS.publish_beside(slot, pages, BESIDE))
    }
}
