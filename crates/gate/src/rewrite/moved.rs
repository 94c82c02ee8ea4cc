//! The instructions behind a site: which must be moved, and whether they may.

use super::decode::{Instruction, Kind, LONGEST, decode};
use super::lock::Held;
use super::text::Memory;
use crate::hazard::PAGE;
use core::cell::UnsafeCell;

/// Bytes of a site's jump that lie behind the site's own two.
pub(super) const OVERWRITTEN: usize = 3;
/// Room for what is moved: at most two bytes of shorter instructions and one of the longest.
pub(super) const MOVED_BYTES: usize = 32;
/// Bytes on either side of a site in which jumps are looked for.
const AROUND: usize = 4096;
/// How far a jump of two bytes reaches.
const NEAR: usize = 144;
/// Bytes before a site from which instructions are decoded until they fall in step.
const RUN_UP: usize = 320;
/// Starts of such runs.
const RUNS: usize = 16;

/// What is moved into a trampoline.
pub(super) struct Moved {
    /// The address behind the site, where `bytes` were.
    pub behind: u64,
    pub bytes: [u8; MOVED_BYTES],
    pub length: usize,
}

struct Window(UnsafeCell<[u8; 2 * AROUND]>);

// SAFETY: only the holder of the lock of rewriting uses the bytes.
unsafe impl Sync for Window {}

static WINDOW: Window = Window(UnsafeCell::new([0; 2 * AROUND]));

impl Moved {
    /// Reads what is behind a site. None: it cannot be moved, or something jumps into it.
    pub(super) fn read(memory: &Memory, _held: &Held, behind: u64) -> Option<Moved> {
        // SAFETY: the caller holds the lock.
        let window = unsafe { &mut *WINDOW.0.get() };
        let site = behind - 2;
        // What is mapped before the site need not be AROUND bytes: fewer pages then.
        let mut start = site.saturating_sub(AROUND as u64 - 64);
        let mut length = memory.read(start, window);
        while length == 0 || start + (length as u64) < behind + OVERWRITTEN as u64 {
            let next = (start / PAGE + 1) * PAGE;
            if next > site {
                return None;
            }
            start = next;
            length = memory.read(start, window);
        }
        let text = window.get(..length)?;
        let at = (site - start) as usize;
        // glibc's and gdb's unwinders know a signal return by its bytes.
        let before = text.get(at.saturating_sub(7)..at)?;
        if before.ends_with(&[0xc7, 0xc0, 15, 0, 0, 0]) || before.ends_with(&[0xb8, 15, 0, 0, 0]) {
            return None;
        }
        if text.get(at..at + 2)? != [0x0f, 0x05] {
            return None;
        }
        let length = movable(text.get(at + 2..)?)?;
        let mut bytes = [0; MOVED_BYTES];
        bytes.get_mut(..length)?.copy_from_slice(text.get(at + 2..at + 2 + length)?);
        (!is_jumped_into(text, at)).then_some(Moved { behind, bytes, length })
    }

    /// The instructions one after the other, each with its place in `bytes`.
    pub(super) fn instructions(&self) -> impl Iterator<Item = (usize, Instruction)> + '_ {
        let mut at = 0;
        core::iter::from_fn(move || {
            let rest = self.bytes.get(at..self.length).filter(|rest| !rest.is_empty())?;
            let instruction = decode(rest).ok()?;
            let place = at;
            at += instruction.length;
            Some((place, instruction))
        })
    }
}

/// Bytes of whole instructions that the jump overwrites, where all of them may be moved.
fn movable(text: &[u8]) -> Option<usize> {
    let mut length = 0;
    while length < OVERWRITTEN {
        let rest = text.get(length..)?;
        let instruction = decode(rest).ok()?;
        if instruction.kind == Kind::Fixed || instruction.length > LONGEST {
            return None;
        }
        length += instruction.length;
        if matches!(instruction.kind, Kind::Return | Kind::Jump(_)) {
            // Nothing behind it is reached from here: what the jump overwrites must be padding.
            let mut padding = length;
            while padding < OVERWRITTEN {
                padding += nothing(text.get(padding..)?)?;
            }
            return Some(length.max(OVERWRITTEN).min(padding.max(length)));
        }
    }
    Some(length)
}

/// The length of an instruction that only fills up.
fn nothing(text: &[u8]) -> Option<usize> {
    match text {
        [0x90 | 0xcc, ..] => Some(1),
        [0x66, 0x90, ..] => Some(2),
        [0x0f, 0x1f, ..] | [0x66, 0x0f, 0x1f, ..] | [0x66, 0x2e, 0x0f, 0x1f, ..] => {
            decode(text).ok().map(|instruction| instruction.length)
        }
        _ => None,
    }
}

/// Whether a jump leads to a byte that will be overwritten, as far as the text around tells. Jumps
/// of two bytes are those of the instructions around; of longer ones any bytes count that look
/// like one, since hardly any look so by chance.
fn is_jumped_into(text: &[u8], site: usize) -> bool {
    let overwritten = site + 1..site + 2 + OVERWRITTEN;
    let leads_there = |end: usize, distance: i32| {
        end.checked_add_signed(distance as isize).is_some_and(|target| overwritten.contains(&target))
    };
    let far = text.windows(5).enumerate().any(|(at, bytes)| {
        let &[opcode, a, b, c, d] = bytes else { return false };
        // No jump of the text around reaches further than two bytes of distance say.
        if c != d || !matches!(d, 0 | 0xff) {
            return false;
        }
        let opens = matches!(opcode, 0xe8 | 0xe9)
            || (opcode & 0xf0 == 0x80 && at > 0 && text.get(at - 1) == Some(&0x0f));
        opens && leads_there(at + 5, i32::from_le_bytes([a, b, c, d]))
    });
    if far {
        return true;
    }
    let near = |at: usize| match text.get(at..at + 2) {
        Some(&[0x70..=0x7f | 0xe0..=0xe3 | 0xeb, distance]) => leads_there(at + 2, distance as i8 as i32),
        _ => false,
    };
    // Behind the site the instructions' borders are known.
    let mut at = site + 2;
    while at < site + NEAR {
        if near(at) {
            return true;
        }
        match text.get(at..).map(decode) {
            Some(Ok(instruction)) => at += instruction.length,
            // Data, or padding: from here any byte may begin one.
            _ => at += 1,
        }
    }
    // Before it they are not: where bytes look like such a jump, runs that end at the site tell.
    (site.saturating_sub(NEAR)..site).any(near)
        && (0..RUNS).any(|run| run_meets(text, site.saturating_sub(RUN_UP) + run, site, &near))
}

/// Whether an instruction begins at `at`, as far as the text before it tells: runs of instructions
/// fall in step after a few, so nearly all that are begun before it must come by.
pub(crate) fn begins_instruction(text: &[u8], at: usize) -> bool {
    const BEFORE: usize = 96;
    const FEW: usize = 8;
    let first = at.saturating_sub(BEFORE);
    let runs = FEW.min(at - first);
    let come_by = (0..runs).filter(|run| run_meets(text, first + run, at, &|_| true)).count();
    runs > 0 && come_by * 8 >= runs * 7
}

/// Whether instructions decoded from `start` on end at the site, and one of them is `near`.
fn run_meets(text: &[u8], start: usize, site: usize, near: &impl Fn(usize) -> bool) -> bool {
    let mut at = start;
    let mut met = false;
    while at < site {
        met |= near(at);
        match text.get(at..).map(decode) {
            Some(Ok(instruction)) => at += instruction.length,
            _ => at += 1,
        }
    }
    met && at == site
}
