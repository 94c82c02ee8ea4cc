//! What a call uses stays in memory while it runs: the table says which bytes, the slots say it to
//! the evictor, and a touch brings back what is away.
//!
//! Only managed pages are touched, so a bad pointer stays the kernel's to refuse. Where a string
//! or a structure leads on, it is read after it was held.

mod named;
mod structures;

pub(crate) use named::nothing_is_managed;

use crate::confined;
use crate::hazard::{ANNOUNCERS, Hazards, NoPages, PAGE, Pages, Published, RANGES, Room, SlotIndex};
use crate::hooks::{self, Incident, Managed, Run};
use crate::inside;
use crate::kernel::{self, Readable, bytes_of, copy, read_bytes};
use crate::slot::{self, Frame, SLOTS};
use crate::sync::{AtomicU32, AtomicU64};
use crate::table::{Access, Extent, Operand, Size, operands};
use crate::touch::{self, Touched};
use core::cell::Cell;
use core::ops::Range;
use linux_raw_sys::general as raw;

/// The longest string of a call: PATH_MAX.
const TEXT_BYTES: u64 = 4096;
/// Words that are read of the program's memory at once.
const AT_ONCE: usize = 16;
/// Strings that a call may have.
const MOST_TEXTS: u64 = 1 << 20;
/// Bytes that are brought back where nobody knows how many the kernel wants.
const GUESS: u64 = 4096;

/// Slots of calls that have a stack of the gate's.
pub(crate) const WITH_STACK: usize = SLOTS + slot::FIRST;
/// Slots of calls, all in all: more threads than that may wait in calls, but hold everything.
pub const ALL_SLOTS: usize = WITH_STACK + (16 << 10);

/// The holds of this process. An evictor takes pages between [`Hazards::announce`] and
/// [`Hazards::withdraw`] only, and none that a call holds.
pub static HAZARDS: Hazards<ALL_SLOTS> = Hazards {
    slots: [const {
        Published {
            ranges: [const { AtomicU64::new(0) }; RANGES],
            holds_all: AtomicU32::new(0),
            is_lent: AtomicU32::new(0),
        }
    }; ALL_SLOTS],
    peak: AtomicU32::new(0),
    announced: [const { AtomicU64::new(0) }; ANNOUNCERS],
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
    /// What a slot has published that it was lent, since its frame is on the program's stack.
    Lent(SlotIndex) = 3,
}

/// Whether a string has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Text {
    Ends,
    GoesOn,
}

/// The hook, the call's slot if it has one, and an address whose page is there.
struct Call {
    managed: fn(u64) -> Run,
    slot: Cell<Option<SlotIndex>>,
    /// Inside a program, where most calls hold nothing: the frame that gets a slot once the call
    /// does.
    waits: Option<*mut Frame>,
    /// Bytes that it holds there.
    held: Cell<u64>,
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
    if inside::is_on() {
        return named::hold(frame, managed, known);
    }
    let here = &raw const *frame as u64;
    let own = slot::index_of(frame).map(SlotIndex);
    let slot = own.or_else(|| HAZARDS.borrow(WITH_STACK, (here / PAGE) as usize));
    frame.hold = match (own, slot) {
        (Some(_), _) => Hold::Slot,
        (None, Some(lent)) => Hold::Lent(lent),
        (None, None) => {
            HAZARDS.join_crowd();
            Hold::Crowd
        }
    };
    let call = Call { managed, slot: Cell::new(slot), waits: None, held: Cell::new(0), here };
    if own.is_none()
        && let Ok(stack) = Pages::around(here - PAGE, PAGE + size_of::<Frame>() as u64)
    {
        // What the gate itself gives to the kernel lies there.
        call.publish(stack);
        call.touch(stack, Access::Both);
    }
    if known.is_none() {
        hooks::report(Incident::UnknownNumber, number as u64);
    }
    call.all(number, known, &arguments);
}

/// Ends the hold of a call.
pub(crate) fn release(frame: &mut Frame) {
    match core::mem::replace(&mut frame.hold, Hold::Nothing) {
        Hold::Nothing => {}
        Hold::Crowd => HAZARDS.leave_crowd(),
        Hold::Lent(index) if inside::is_on() => inside::end(index, frame),
        Hold::Lent(index) => HAZARDS.give_back(index),
        Hold::Slot => {
            if let Some(index) = slot::index_of(frame) {
                HAZARDS.release(SlotIndex(index));
            }
        }
    }
}

/// Ends the hold of a call that has no stack of the gate's and will not end it.
pub(crate) fn end_without_stack(lent: Option<SlotIndex>) {
    match lent {
        Some(index) => HAZARDS.give_back(index),
        None => HAZARDS.leave_crowd(),
    }
}

/// Forgets, in the child of a fork, what calls hold that have no stack of the gate's: its parent
/// has them, but for this one; and what the evictor was about to take.
pub(crate) fn forget_others(own: &Frame) {
    HAZARDS.forget_crowd();
    HAZARDS.give_back_others(match own.hold {
        Hold::Lent(index) => Some(index),
        _ => None,
    });
}

/// Reads words that need not be there, and may be away.
pub(crate) fn read_words(address: u64, words: &mut [u64], here: u64) -> Readable {
    match hooks::MANAGED.get() {
        None => kernel::read_words(address, words, here),
        Some(managed) => Call::of_nobody(managed, here).read(address, bytes_of(words)),
    }
}

/// Whether any of these bytes may be away.
pub(crate) fn are_managed(address: u64, bytes: u64) -> bool {
    let Some(managed) = hooks::MANAGED.get() else { return false };
    Pages::around(address, bytes).is_ok_and(|pages| Call::of_nobody(managed, address).are_managed(pages))
}

/// Whether the page of an address may be away.
pub(crate) fn is_managed(address: u64) -> bool {
    hooks::MANAGED.get().is_some_and(|managed| managed(address / PAGE).managed != Managed::No)
}

/// Makes touches of what only may be a pointer: one that the program may not touch raises SIGSEGV,
/// which it may have blocked.
fn with_faults<T>(touches: impl FnOnce() -> T) -> T {
    const FAULT: u64 = 1 << (raw::SIGSEGV - 1);
    if confined::is_confined() {
        return touches();
    }
    let before = kernel::unblock(FAULT);
    let result = touches();
    if before & FAULT != 0 {
        kernel::set_mask(before);
    }
    result
}

impl Call {
    /// One that holds nothing.
    fn of_nobody(managed: fn(u64) -> Run, here: u64) -> Call {
        Call { managed, slot: Cell::new(None), waits: None, held: Cell::new(0), here }
    }

    /// All that a call uses.
    fn all(&self, number: u32, known: Option<&[Operand]>, arguments: &[u64; 6]) {
        match known {
            None => {
                self.hold_all();
                with_faults(|| arguments.iter().for_each(|argument| self.guess(*argument)));
            }
            Some(operands) => operands.iter().for_each(|operand| self.operand(operand, arguments)),
        }
        if number == raw::__NR_futex_waitv {
            self.waiters(arguments[0], arguments[1]);
        }
    }

    fn operand(&self, operand: &Operand, arguments: &[u64; 6]) {
        let address = arguments.get(operand.argument as usize).copied().unwrap_or(0);
        let other = |number: u8| arguments.get(number as usize).copied().unwrap_or(0);
        match operand.extent(arguments) {
            Extent::Bytes(bytes) => return self.range(address, bytes, operand.access),
            Extent::Nothing => return,
            Extent::Unknown(bytes) => {
                self.hold_all();
                self.range(address, bytes as u64, operand.access);
                return with_faults(|| self.words_of(address, bytes as u64 / 8, |word| self.guess(word)));
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

    /// Everything; inside a program, where a call may wait for long, nothing but what is named.
    fn hold_all(&self) {
        if let Some(slot) = self.slot.get().filter(|_| self.waits.is_none()) {
            HAZARDS.hold_all(slot);
        }
    }

    fn publish(&self, pages: Pages) {
        if self.waits.is_some() {
            self.publish_inside(pages);
        } else if let Some(slot) = self.slot.get() {
            HAZARDS.publish(slot, pages);
        }
    }

    /// Holds bytes, and brings back those that are away.
    fn range(&self, address: u64, bytes: u64, access: Access) {
        match Pages::around(address, bytes) {
            Ok(pages) if self.waits.is_some() => {
                if self.publish_inside(pages) == Room::Yes {
                    self.touch(pages, access);
                }
            }
            Ok(pages) => {
                self.publish(pages);
                self.touch(pages, access);
            }
            Err(NoPages::Empty | NoPages::Outside) => {}
            Err(NoPages::Many) => self.hold_all(),
        }
    }

    /// Brings back what a word may lead to, while everything is held.
    fn guess(&self, address: u64) {
        if let Ok(pages) = Pages::around(address, GUESS) {
            if self.waits.is_some() && self.publish_inside(pages) == Room::No {
                return;
            }
            self.touch(pages, Access::Both);
        }
    }

    /// Brings back those of the pages that are managed and away.
    fn touch(&self, pages: Pages, access: Access) {
        for (pages, managed) in self.managed_runs(pages) {
            pages.for_each(|page| touch_page(page, managed, access));
        }
    }

    /// The managed ones of the pages, in runs that are managed alike.
    fn managed_runs(&self, pages: Pages) -> impl Iterator<Item = (Range<u64>, Managed)> {
        let mut page = pages.first();
        let runs = core::iter::from_fn(move || {
            let start = page;
            (start < pages.end()).then(|| {
                let Run { managed, end } = (self.managed)(start);
                page = end.clamp(start + 1, pages.end());
                (start..page, managed)
            })
        });
        runs.filter(|(_, managed)| *managed != Managed::No)
    }

    /// Whether any of the pages is managed.
    fn are_managed(&self, pages: Pages) -> bool {
        self.managed_runs(pages).next().is_some()
    }

    fn is_managed(&self, page: u64) -> bool {
        (self.managed)(page).managed != Managed::No
    }

    /// Bytes of the program; whether they could be read.
    fn read(&self, address: u64, to: &mut [u8]) -> Readable {
        let Ok(pages) = Pages::around(address, to.len() as u64) else { return Readable::No };
        if (pages.first()..pages.end()).all(|page| self.is_managed(page)) {
            if (pages.first()..pages.end()).any(|page| touch::read(page * PAGE) == Touched::No) {
                return Readable::No;
            }
            // SAFETY: the pages could be read just now; where one has left since, reading it is
            // served.
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
        self.publish(pages);
        self.touch_text(address, pages.end());
    }

    /// A string of any length: page by page.
    fn long_text(&self, address: u64) {
        let mut at = address;
        while let Ok(pages) = Pages::around(at, 1) {
            self.publish(pages);
            if self.touch_text(at, pages.end()) == Text::Ends {
                return;
            }
            at = pages.end() * PAGE;
        }
    }

    /// Touches a string up to its end, or to a page.
    fn touch_text(&self, address: u64, end: u64) -> Text {
        let mut at = address;
        while at / PAGE < end && self.is_managed(at / PAGE) {
            let page = at / PAGE;
            if touch::read(at) == Touched::No {
                return Text::Ends;
            }
            while at / PAGE == page {
                // SAFETY: the page could be read just now.
                if unsafe { (at as *const u8).read_volatile() } == 0 {
                    return Text::Ends;
                }
                at += 1;
            }
        }
        if at / PAGE == end {
            return Text::GoesOn;
        }
        // What is not managed is there, or the kernel's to refuse; it may reach into what follows.
        if let Ok(next) = Pages::around((at / PAGE + 1) * PAGE, 1) {
            self.publish(next);
            self.touch(next, Access::Read);
        }
        Text::Ends
    }

    /// An array of strings.
    fn texts(&self, address: u64) {
        for index in 0..MOST_TEXTS {
            let at = address.wrapping_add(index * 8);
            if (at / PAGE != at.wrapping_sub(8) / PAGE || index == 0)
                && let Ok(pages) = Pages::around(at, 8)
            {
                self.publish(pages);
                self.touch(pages, Access::Read);
            }
            match self.words(at) {
                [0] => return,
                [text] => self.long_text(text),
            }
        }
    }
}

/// Brings back a managed page. Where the program may not touch it, the kernel is to say so.
fn touch_page(page: u64, managed: Managed, access: Access) {
    let at = page * PAGE;
    let is_written = managed == Managed::Writable && access != Access::Read;
    if !is_written || touch::write(at) == Touched::No {
        touch::read(at);
    }
}
