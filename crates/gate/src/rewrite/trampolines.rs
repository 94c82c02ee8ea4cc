//! Trampolines: the way from a rewritten site into the gate, and the moved instructions after it.

use super::decode::Kind;
use super::lock::Held;
use super::moved::Moved;
use super::text::Memory;
use crate::entry;
use crate::kernel::call;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use linux_raw_sys::general as raw;

/// Bytes of an area of trampolines.
const AREA_BYTES: u64 = 64 << 10;
const AREAS: usize = 64;
/// The longest trampoline.
const LONGEST: usize = 128;
/// How far a jump of five bytes reaches, less an area.
const REACH: u64 = (1 << 31) - 2 * AREA_BYTES;
/// Distance between two places that are tried for an area.
const STEP: u64 = 1 << 20;
/// No area lies below.
const LOWEST: u64 = 64 << 10;
/// The low byte of a jump's distance, which is the second byte of `syscall`.
const LOW_BYTE: u64 = 0x05;

#[derive(Clone, Copy)]
struct Area {
    start: u64,
    next: u64,
}

struct Areas(UnsafeCell<[Area; AREAS]>);

// SAFETY: only the holder of the lock of rewriting uses them.
unsafe impl Sync for Areas {}

static ALL: Areas = Areas(UnsafeCell::new([Area { start: 0, next: 0 }; AREAS]));

/// 1 once no area could be mapped: a search takes thousands of calls.
static FAILED: AtomicU32 = AtomicU32::new(0);

/// Makes a trampoline; returns its address, and the address where calls go on in it.
pub(super) fn make(memory: &Memory, _held: &Held, moved: &Moved) -> Option<(u64, u64)> {
    // SAFETY: the caller holds the lock.
    let areas = unsafe { &mut *ALL.0.get() };
    let site_end = moved.behind + 3;
    let mut found = None;
    for area in areas.iter_mut() {
        if area.start == 0 {
            if FAILED.load(Relaxed) != 0 {
                return None;
            }
            area.start = map_near(site_end).or_else(|| {
                FAILED.store(1, Relaxed);
                None
            })?;
            area.next = area.start;
        }
        if area.start.abs_diff(site_end) > REACH {
            continue;
        }
        let wanted = site_end.wrapping_add(LOW_BYTE);
        let at = area.next + (wanted.wrapping_sub(area.next) & 0xff);
        if at + LONGEST as u64 <= area.start + AREA_BYTES {
            found = Some((area, at));
            break;
        }
    }
    let (area, at) = found?;
    let mut code = Code { bytes: [0; LONGEST], length: 0, at };
    let goes_on = code.trampoline(moved)?;
    if !memory.write(at, code.bytes.get(..code.length)?) {
        return None;
    }
    area.next = at + code.length as u64;
    Some((at, goes_on))
}

/// Maps an area within reach. Below first: the heap grows upwards behind a program.
fn map_near(address: u64) -> Option<u64> {
    let base = address & !(AREA_BYTES - 1);
    let below = (1..REACH / STEP).map_while(|step| base.checked_sub(step * STEP).filter(|at| *at >= LOWEST));
    let above = (1..REACH / STEP).rev().map(|step| base + step * STEP);
    let flags = raw::MAP_PRIVATE | raw::MAP_ANONYMOUS | raw::MAP_FIXED_NOREPLACE;
    let protection = (raw::PROT_READ | raw::PROT_EXEC) as u64;
    below.chain(above).find(|at| {
        let arguments = [*at, AREA_BYTES, protection, flags as u64, u64::MAX, 0];
        // SAFETY: maps new memory where none is. A kernel that does not know the last flag takes
        // the address as a wish, and what it maps elsewhere is given back.
        match unsafe { call(raw::__NR_mmap, arguments) } {
            Ok(mapped) if mapped == *at => true,
            Ok(mapped) => {
                // SAFETY: the memory that was mapped just now.
                let _ = unsafe { call(raw::__NR_munmap, [mapped, AREA_BYTES, 0, 0, 0, 0]) };
                false
            }
            Err(_) => false,
        }
    })
}

/// Instructions for the address `at`.
struct Code {
    bytes: [u8; LONGEST],
    length: usize,
    at: u64,
}

impl Code {
    fn add(&mut self, bytes: &[u8]) -> Option<()> {
        self.bytes.get_mut(self.length..self.length + bytes.len())?.copy_from_slice(bytes);
        self.length += bytes.len();
        Some(())
    }

    /// Adds four bytes of distance to `target`, from the end of the instruction, which is `behind`
    /// bytes further.
    fn distance(&mut self, target: u64, behind: u64) -> Option<()> {
        let end = self.at + self.length as u64 + 4 + behind;
        let distance = i32::try_from(target.wrapping_sub(end) as i64).ok()?;
        self.add(&distance.to_le_bytes())
    }

    /// Returns where calls go on.
    fn trampoline(&mut self, moved: &Moved) -> Option<u64> {
        const TO_GATE: u64 = 16;
        // lea rcx, [goes on]
        self.add(&[0x48, 0x8d, 0x0d])?;
        let goes_on = self.at + self.length as u64 + 4 + 7 + TO_GATE;
        self.distance(goes_on, 0)?;
        // lea r11, [behind the site]
        self.add(&[0x4c, 0x8d, 0x1d])?;
        self.distance(moved.behind, 0)?;
        // jmp [rip]; the entry may lie anywhere.
        self.add(&[0xff, 0x25, 0, 0, 0, 0])?;
        self.add(&entry::begin().to_le_bytes())?;
        // For calls that the entry sends back ([`entry::AT_SITE`]).
        self.add(&[0x0f, 0x05])?;
        for (place, instruction) in moved.instructions() {
            let bytes = moved.bytes.get(place..place + instruction.length)?;
            let end = moved.behind + (place + instruction.length) as u64;
            match instruction.kind {
                Kind::Plain => self.add(bytes)?,
                Kind::Relative(at) => {
                    let at = at as usize;
                    let old = i32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?);
                    self.add(bytes.get(..at)?)?;
                    self.distance(end.wrapping_add_signed(old as i64), (instruction.length - at - 4) as u64)?;
                    self.add(bytes.get(at + 4..)?)?;
                }
                Kind::Branch(condition, distance) => {
                    self.add(&[0x0f, 0x80 | condition])?;
                    self.distance(end.wrapping_add_signed(distance as i64), 0)?;
                }
                Kind::Jump(distance) => {
                    self.add(&[0xe9])?;
                    self.distance(end.wrapping_add_signed(distance as i64), 0)?;
                    return Some(goes_on);
                }
                Kind::Return => {
                    self.add(bytes)?;
                    return Some(goes_on);
                }
                Kind::Fixed => return None,
            }
        }
        self.add(&[0xe9])?;
        self.distance(moved.behind + moved.length as u64, 0)?;
        Some(goes_on)
    }
}
