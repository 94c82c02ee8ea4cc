//! What a call uses stays in memory while it runs: the table says which bytes, the slots say it to
//! the evictor, and a touch brings back what is away.
//!
//! Only managed pages are touched, so a bad pointer stays the kernel's to refuse. Where a string
//! or a structure leads on, it is read after it was held.

use crate::hazard::{Hazards, NoPages, PAGE, Pages, Published, RANGES, SlotIndex};
use crate::hooks::{self, Incident, Managed};
use crate::kernel::{self, Readable, bytes_of, copy, read_bytes};
use crate::slot::{self, Frame, SLOTS};
use crate::sync::{AtomicU32, AtomicU64};
use crate::table::{Access, Extent, Operand, Size, operands};
use core::arch::asm;
use linux_raw_sys::general as raw;

/// The longest string of a call: PATH_MAX.
const TEXT_BYTES: u64 = 4096;
/// Bytes of a msghdr, and of a mmsghdr.
const MESSAGE_BYTES: u64 = 56;
const MESSAGES_BYTES: u64 = 64;
/// Words that are read of the program's memory at once.
const AT_ONCE: usize = 16;
/// Messages, and strings, that a call may have.
const MOST_MESSAGES: u64 = 1024;
const MOST_TEXTS: u64 = 1 << 20;
/// Bytes that are brought back where nobody knows how many the kernel wants.
const GUESS: u64 = 4096;

const ALL_SLOTS: usize = SLOTS + slot::FIRST;

/// The holds of this process. An evictor takes pages by [`Hazards::evict`] only.
pub static HAZARDS: Hazards<ALL_SLOTS> = Hazards {
    slots: [const { Published { ranges: [const { AtomicU64::new(0) }; RANGES], holds_all: AtomicU32::new(0) } };
        ALL_SLOTS],
    peak: AtomicU32::new(0),
    announced: AtomicU64::new(0),
    crowd: AtomicU32::new(0),
};

/// What a call holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Hold {
    Nothing = 0,
    /// What its slot has published.
    Slot = 1,
    /// Everything, since it has no slot.
    Crowd = 2,
}

/// The hook, the call's slot if it has one, and an address whose page is there.
struct Call {
    managed: extern "C" fn(u64) -> Managed,
    slot: Option<SlotIndex>,
    here: u64,
}

/// Holds what a call uses, until [`release`].
pub(crate) fn hold(frame: &mut Frame) {
    frame.hold = Hold::Nothing;
    let Some(managed) = hooks::MANAGED.get() else { return };
    let [number, arguments @ ..] = frame.saved;
    let number = number as u32;
    let known = operands(number);
    if known.is_some_and(<[Operand]>::is_empty) {
        return;
    }
    let slot = slot::index_of(frame).map(SlotIndex);
    frame.hold = match slot {
        Some(_) => Hold::Slot,
        None => {
            HAZARDS.join_crowd();
            Hold::Crowd
        }
    };
    let call = Call { managed, slot, here: &raw const *frame as u64 };
    match known {
        None => {
            hooks::report(Incident::UnknownNumber, number as u64);
            call.hold_all();
            arguments.iter().for_each(|argument| call.guess(*argument));
        }
        Some(operands) => operands.iter().for_each(|operand| call.operand(operand, &arguments)),
    }
}

/// Ends the hold of a call.
pub(crate) fn release(frame: &mut Frame) {
    match core::mem::replace(&mut frame.hold, Hold::Nothing) {
        Hold::Nothing => {}
        Hold::Crowd => HAZARDS.leave_crowd(),
        Hold::Slot => {
            if let Some(index) = slot::index_of(frame) {
                HAZARDS.release(SlotIndex(index));
            }
        }
    }
}

/// Ends the hold of a call that has no slot and will not end it.
pub(crate) fn leave_crowd() {
    HAZARDS.leave_crowd();
}

/// Forgets, in the child of a fork, what no slot says: its parent has the calls, and the evictor.
pub(crate) fn forget_crowd() {
    HAZARDS.forget_crowd();
}

/// Reads words that need not be there, and may be away.
pub(crate) fn read_words(address: u64, words: &mut [u64], here: u64) -> Readable {
    match hooks::MANAGED.get() {
        None => kernel::read_words(address, words, here),
        Some(managed) => Call { managed, slot: None, here }.read(address, bytes_of(words)),
    }
}

impl Call {
    fn operand(&self, operand: &Operand, arguments: &[u64; 6]) {
        let address = arguments.get(operand.argument as usize).copied().unwrap_or(0);
        let other = |number: u8| arguments.get(number as usize).copied().unwrap_or(0);
        match operand.extent(arguments) {
            Extent::Bytes(bytes) => return self.range(address, bytes, operand.access),
            Extent::Nothing => return,
            Extent::Unknown(bytes) => {
                self.hold_all();
                self.range(address, bytes as u64, operand.access);
                return self.words_of(address, bytes as u64 / 8, |word| self.guess(word));
            }
            Extent::InMemory => {}
        }
        match operand.size {
            Size::Text => self.text(address),
            Size::TextOrPage => self.range(address, PAGE, Access::Read),
            Size::Texts => self.texts(address),
            Size::Vectors(count) => self.vectors(address, other(count), operand.access),
            Size::Message => self.message(address, operand.access),
            Size::Messages(count) => self.messages(address, other(count) as u32, operand.access),
            Size::Pointed(length) => {
                self.range(other(length), 4, Access::Both);
                self.range(address, self.int(other(length)) as u64, operand.access);
            }
            Size::Inside(offset) => {
                self.range(address, offset as u64 + 4, operand.access);
                let bytes = self.int(address.wrapping_add(offset as u64));
                self.range(address, bytes.min(PAGE as u32) as u64, operand.access);
            }
            Size::Mask => {
                self.range(address, 16, Access::Read);
                self.range(self.words::<1>(address)[0], 8, Access::Read);
            }
            Size::Clone3 => {
                // Words for descriptors and thread ids, and an array of ids with its length.
                let [_, pidfd, child, parent, ..] = self.words::<4>(address);
                [pidfd, child, parent].into_iter().for_each(|word| self.range(word, 4, Access::Write));
                if other(1) >= 80 {
                    let [ids, count] = self.words(address.wrapping_add(64));
                    self.range(ids, count.min(PAGE) * 4, Access::Read);
                }
            }
            _ => {}
        }
    }

    fn hold_all(&self) {
        if let Some(slot) = self.slot {
            HAZARDS.hold_all(slot);
        }
    }

    /// Holds bytes, and brings back those that are away.
    fn range(&self, address: u64, bytes: u64, access: Access) {
        match Pages::around(address, bytes) {
            Ok(pages) => {
                if let Some(slot) = self.slot {
                    HAZARDS.publish(slot, pages);
                }
                for page in pages.first()..pages.end() {
                    self.touch(page, access);
                }
            }
            Err(NoPages::Empty | NoPages::Outside) => {}
            Err(NoPages::Many) => self.hold_all(),
        }
    }

    /// Brings back what a word may lead to, while everything is held.
    fn guess(&self, address: u64) {
        if let Ok(pages) = Pages::around(address, GUESS) {
            for page in pages.first()..pages.end() {
                self.touch(page, Access::Both);
            }
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

    /// Bytes of the program; whether they could be read.
    fn read(&self, address: u64, to: &mut [u8]) -> Readable {
        let Ok(pages) = Pages::around(address, to.len() as u64) else { return Readable::No };
        if (pages.first()..pages.end()).all(|page| (self.managed)(page) != Managed::No) {
            // SAFETY: the pages are managed, so reading them is served.
            unsafe { copy(address, to) };
            return Readable::Yes;
        }
        read_bytes(address, to, self.here)
    }

    /// Words of the program; zero where there are none.
    fn words<const COUNT: usize>(&self, address: u64) -> [u64; COUNT] {
        let mut words = [0; COUNT];
        self.read_words(address, &mut words);
        words
    }

    fn read_words(&self, address: u64, words: &mut [u64]) {
        if self.read(address, bytes_of(words)) == Readable::No {
            words.fill(0);
        }
    }

    /// An `int` of the program.
    fn int(&self, address: u64) -> u32 {
        let mut bytes = [0; 4];
        match self.read(address, &mut bytes) {
            Readable::Yes => u32::from_le_bytes(bytes),
            Readable::No => 0,
        }
    }

    /// Calls `see` with words of the program.
    fn words_of(&self, address: u64, count: u64, mut see: impl FnMut(u64)) {
        let mut words = [0; AT_ONCE];
        let mut done = 0;
        while done < count {
            let some = (count - done).min(AT_ONCE as u64);
            let part = &mut words[..some as usize];
            self.read_words(address.wrapping_add(done * 8), part);
            part.iter().for_each(|word| see(*word));
            done += some;
        }
    }

    /// A string lies in the page where it begins, or goes on in the next.
    fn text(&self, address: u64) {
        let Ok(pages) = Pages::around(address, TEXT_BYTES) else { return };
        if let Some(slot) = self.slot {
            HAZARDS.publish(slot, pages);
        }
        self.touch_text(address, pages.end());
    }

    /// Touches a string up to its end, or to a page.
    fn touch_text(&self, address: u64, end: u64) {
        let mut at = address;
        while at / PAGE < end && (self.managed)(at / PAGE) != Managed::No {
            let page = at / PAGE;
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
        self.hold_all();
        for index in 0..MOST_TEXTS {
            let at = address.wrapping_add(index * 8);
            if at / PAGE != at.wrapping_sub(8) / PAGE || index == 0 {
                self.touch(at / PAGE, Access::Read);
            }
            match self.words(at) {
                [0] => return,
                [text] => self.touch_text(text, u64::MAX),
            }
        }
    }

    fn vectors(&self, address: u64, count: u64, access: Access) {
        if count > raw::UIO_MAXIOV as u64 {
            return;
        }
        self.range(address, count * 16, Access::Read);
        let mut base = None;
        self.words_of(address, count * 2, |word| match base.take() {
            None => base = Some(word),
            Some(base) => self.range(base, word, access),
        });
    }

    fn message(&self, address: u64, access: Access) {
        self.range(address, MESSAGE_BYTES, Access::Both);
        let [name, name_bytes, vectors, count, control, control_bytes] = self.words(address);
        self.range(name, name_bytes as u32 as u64, access);
        self.vectors(vectors, count, access);
        self.range(control, control_bytes, access);
    }

    /// An array of messages: more than six ranges.
    fn messages(&self, address: u64, count: u32, access: Access) {
        self.hold_all();
        let count = (count as u64).min(MOST_MESSAGES);
        self.range(address, count * MESSAGES_BYTES, Access::Both);
        for index in 0..count {
            self.message(address.wrapping_add(index * MESSAGES_BYTES), access);
        }
    }
}
