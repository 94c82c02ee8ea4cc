//! What a call uses stays in memory while it runs: the table says which bytes, the slots say it to
//! the evictor, and a touch brings back what is away.
//!
//! Only managed pages are touched, so a bad pointer stays the kernel's to refuse. Where a string
//! or a structure leads on, it is read after it was held.

use crate::entry::Frame;
use crate::hazard::{ANYBODY, Hazards, NoPages, PAGE, Pages, RANGES, Slot, SlotIndex};
use crate::hooks::{self, Incident, Managed};
use crate::kernel::{Readable, read_words, thread_id};
use crate::sync::{AtomicU32, AtomicU64};
use crate::table::{Access, Extent, Operand, Size, operands};
use core::arch::asm;
use linux_raw_sys::general as raw;

/// Calls that may hold memory at once; further ones hold everything.
pub const SLOTS: usize = 256;
/// The longest string of a call: PATH_MAX.
const TEXT_BYTES: u64 = 4096;
/// Bytes of a msghdr.
const MESSAGE_BYTES: u64 = 56;
/// The frame's scratch word with the slot's number.
const SLOT: usize = 7;
const NO_SLOT: u64 = u64::MAX;
/// The call found no slot, and holds everything.
const CROWD: u64 = u64::MAX - 1;
/// The frame's scratch word that tells a live call's frame from what came after it.
const COOKIE: usize = 6;
const MAGIC: u64 = 0x9bd4_0e83_57c1_6f2d;

/// The holds of this process. An evictor takes pages by [`Hazards::evict`] only.
pub static HAZARDS: Hazards<SLOTS> = Hazards {
    slots: [const {
        Slot {
            owner: AtomicU32::new(0),
            place: AtomicU64::new(0),
            ranges: [const { AtomicU64::new(0) }; RANGES],
            holds_all: AtomicU32::new(0),
        }
    }; SLOTS],
    announced: AtomicU64::new(0),
    crowd: AtomicU32::new(0),
};

/// The hook, the call's slot, and an address whose page is there.
struct Call {
    managed: extern "C" fn(u64) -> Managed,
    slot: SlotIndex,
    stack: u64,
}

/// Holds what a call uses, until [`release`].
pub(crate) fn hold(frame: &mut Frame) {
    frame.scratch[SLOT] = NO_SLOT;
    let Some(managed) = hooks::MANAGED.get() else { return };
    let [number, arguments @ ..] = frame.saved;
    let known = operands(number);
    if known.is_some_and(<[Operand]>::is_empty) {
        return;
    }
    let Some(slot) = claim(frame) else {
        HAZARDS.join_crowd();
        frame.scratch[SLOT] = CROWD;
        return;
    };
    frame.scratch[SLOT] = slot.0 as u64;
    let call = Call { managed, slot, stack: &raw const *frame as u64 };
    match known {
        None => {
            hooks::report(Incident::UnknownNumber, number);
            HAZARDS.hold_all(slot);
            // What the words may lead to comes back; more of it cannot be known.
            for argument in arguments {
                call.range(argument, 1, Access::Read);
            }
        }
        Some(operands) => {
            for operand in operands {
                call.operand(operand, &arguments);
            }
        }
    }
}

/// Ends the hold of a call.
pub(crate) fn release(frame: &mut Frame) {
    release_word(frame.scratch[SLOT]);
    frame.scratch[SLOT] = NO_SLOT;
    frame.scratch[COOKIE] = 0;
}

/// What a path must keep that finds its frame overwritten; for [`release_word`].
pub(crate) fn slot_word(frame: &Frame) -> u64 {
    if frame.scratch[SLOT] < CROWD {
        HAZARDS.leave_place(SlotIndex(frame.scratch[SLOT] as u32));
    }
    frame.scratch[SLOT]
}

pub(crate) fn release_word(word: u64) {
    match word {
        NO_SLOT => {}
        CROWD => HAZARDS.leave_crowd(),
        slot => HAZARDS.release(SlotIndex(slot as u32)),
    }
}

/// Ends the holds of a process that has left this memory by its end or by exec.
pub(crate) fn release_process(process: u32) {
    HAZARDS.release_of(|owner, _| owner == process);
}

/// Ends all holds in the child of a fork: its parent's threads have them.
pub(crate) fn release_everything() {
    HAZARDS.release_of(|_, _| true);
    HAZARDS.forget_others();
}

fn claim(frame: &mut Frame) -> Option<SlotIndex> {
    let owner = match frame.saved[0] as u32 {
        // The process leaves this memory where the call succeeds: its parent ends the hold.
        raw::__NR_execve | raw::__NR_execveat => thread_id(),
        _ => ANYBODY,
    };
    let place = &raw const *frame as u64;
    frame.scratch[COOKIE] = MAGIC ^ place;
    HAZARDS.claim(owner, place).or_else(|| {
        // A handler that leaves a call by a jump leaves its slot. Such a call's frame has been
        // overwritten by now, or will be; that of a call that lives has its cookie.
        HAZARDS.release_of(|_, other| other != 0 && is_overwritten(other, place));
        HAZARDS.claim(owner, place)
    })
}

fn is_overwritten(place: u64, stack: u64) -> bool {
    let mut cookie = [0];
    let at = place + (core::mem::offset_of!(Frame, scratch) + COOKIE * size_of::<u64>()) as u64;
    read_words(at, &mut cookie, stack) == Readable::No || cookie[0] != MAGIC ^ place
}

impl Call {
    fn operand(&self, operand: &Operand, arguments: &[u64; 6]) {
        let address = arguments.get(operand.argument as usize).copied().unwrap_or(0);
        let other = |number: u8| arguments.get(number as usize).copied().unwrap_or(0);
        match operand.extent(arguments) {
            Extent::Bytes(bytes) => return self.range(address, bytes, operand.access),
            Extent::Nothing => return,
            Extent::Unknown => {
                HAZARDS.hold_all(self.slot);
                return self.range(address, 1, operand.access);
            }
            Extent::InMemory => {}
        }
        match operand.size {
            Size::Text => self.text(address),
            Size::TextOrPage => self.range(address, PAGE, Access::Read),
            Size::Texts => self.texts(address),
            Size::Vectors(count) => self.vectors(address, other(count), operand.access),
            Size::Message => self.message(address, operand.access),
            Size::Messages(_) => HAZARDS.hold_all(self.slot),
            Size::Pointed(length) => {
                self.range(other(length), 4, Access::Both);
                let bytes = self.word(other(length)) as u32;
                self.range(address, bytes as u64, operand.access);
            }
            Size::Inside(offset) => {
                self.range(address, offset as u64 + 4, operand.access);
                let bytes = self.word(address.wrapping_add(offset as u64)) as u32;
                self.range(address, bytes.min(PAGE as u32) as u64, operand.access);
            }
            Size::Mask => {
                self.range(address, 16, Access::Read);
                self.range(self.word(address), 8, Access::Read);
            }
            _ => {}
        }
    }

    /// Holds bytes, and brings back those that are away.
    fn range(&self, address: u64, bytes: u64, access: Access) {
        match Pages::around(address, bytes) {
            Ok(pages) => {
                HAZARDS.publish(self.slot, pages);
                for page in pages.first()..pages.end() {
                    self.touch(page, access);
                }
            }
            Err(NoPages::Empty | NoPages::Outside) => {}
            Err(NoPages::Many) => HAZARDS.hold_all(self.slot),
        }
    }

    fn touch(&self, page: u64, access: Access) {
        let at = page * PAGE;
        match ((self.managed)(page), access) {
            (Managed::No, _) => {}
            // SAFETY: the page is managed, so a read or a write of it is served. The write changes
            // no bit, and is atomic beside the program's own.
            (Managed::Writable, Access::Write | Access::Both) => unsafe {
                asm!("lock or byte ptr [{}], 0", in(reg) at, options(nostack));
            },
            // SAFETY: as above, and it is readable.
            (Managed::Readable | Managed::Writable, _) => unsafe {
                asm!("mov {1:l}, byte ptr [{0}]", in(reg) at, out(reg) _, options(nostack, readonly));
            },
        }
    }

    /// A word of the program, which is held already; 0 where there is none.
    fn word(&self, address: u64) -> u64 {
        let mut word = [0];
        match read_words(address, &mut word, self.stack) {
            Readable::Yes => word[0],
            Readable::No => 0,
        }
    }

    /// A string lies in the page where it begins, or goes on in the next.
    fn text(&self, address: u64) {
        let Ok(pages) = Pages::around(address, TEXT_BYTES) else { return };
        HAZARDS.publish(self.slot, pages);
        let mut at = address;
        for page in pages.first()..pages.end() {
            if (self.managed)(page) == Managed::No {
                return;
            }
            while at / PAGE == page {
                // SAFETY: the page is managed, so reading it is served.
                if unsafe { (at as *const u8).read_volatile() } == 0 {
                    return;
                }
                at += 1;
            }
        }
    }

    /// An array of strings: more than six ranges.
    fn texts(&self, address: u64) {
        const MOST: u64 = 1 << 20;
        HAZARDS.hold_all(self.slot);
        for index in 0..MOST {
            let at = address.wrapping_add(index * 8);
            if at / PAGE != at.wrapping_sub(8) / PAGE || index == 0 {
                self.touch(at / PAGE, Access::Read);
            }
            match self.word(at) {
                0 => return,
                text => self.touched_text(text),
            }
        }
    }

    /// A string of any length, while everything is held.
    fn touched_text(&self, address: u64) {
        let mut at = address;
        // SAFETY: the page is managed, so reading it is served.
        while (self.managed)(at / PAGE) != Managed::No && unsafe { (at as *const u8).read_volatile() } != 0 {
            at += 1;
        }
    }

    fn vectors(&self, address: u64, count: u64, access: Access) {
        if count > raw::UIO_MAXIOV as u64 {
            return;
        }
        self.range(address, count * 16, Access::Read);
        for index in 0..count {
            let at = address.wrapping_add(index * 16);
            self.range(self.word(at), self.word(at.wrapping_add(8)), access);
        }
    }

    fn message(&self, address: u64, access: Access) {
        self.range(address, MESSAGE_BYTES, Access::Both);
        let word = |index: u64| self.word(address.wrapping_add(index * 8));
        self.range(word(0), word(1) as u32 as u64, access);
        self.vectors(word(2), word(3), access);
        self.range(word(4), word(5), access);
    }
}
