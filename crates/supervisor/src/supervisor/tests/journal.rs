//! The inputs that the supervisor at work has had, in memory that outlives the process in which it
//! works. So an input is known whatever it does: panic, exit, or never come back.
//!
//! A file of inputs has the same form: a byte of settings, and then each input behind its length.

use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::{
    fs::File,
    path::Path,
    sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed},
};

/// Room for the inputs of one supervisor.
const ROOM: usize = 1 << 20;

#[repr(C)]
pub struct Journal {
    /// Inputs that were begun since the start.
    pub executions: AtomicUsize,
    length: AtomicUsize,
    /// Where the last input begins, with its length.
    last: AtomicUsize,
    bytes: [AtomicU8; ROOM],
}

/// The inputs of one supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// How the supervisor is set up, in bits.
    pub settings: u8,
    pub inputs: Vec<Vec<u8>>,
}

impl Script {
    /// Reads a file; what is cut off at its end is an input all the same.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let (settings, mut rest) = bytes.split_first().map_or((0, bytes), |(first, rest)| (*first, rest));
        let mut inputs = Vec::new();
        while let Some((length, behind)) = rest.split_first_chunk::<2>() {
            let (input, next) = behind.split_at(usize::from(u16::from_le_bytes(*length)).min(behind.len()));
            inputs.push(input.to_vec());
            rest = next;
        }
        Script { settings, inputs }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let inputs = self.inputs.iter().flat_map(|input| framed(input));
        std::iter::once(self.settings).chain(inputs).collect()
    }
}

/// An input behind its length.
fn framed(input: &[u8]) -> impl Iterator<Item = u8> {
    let length = input.len().min(u16::MAX.into());
    (length as u16).to_le_bytes().into_iter().chain(input[..length].iter().copied())
}

impl Journal {
    /// Maps a new file, or one that another process made.
    pub fn of_file(path: &Path) -> &'static Journal {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path);
        let file = file.expect("the journal");
        file.set_len(size_of::<Journal>() as u64).expect("its length");
        // SAFETY: a shared mapping of the whole file, for ever; it consists of atomics.
        unsafe {
            &*mmap(
                std::ptr::null_mut(),
                size_of::<Journal>(),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &file,
                0,
            )
            .expect("mmap")
            .cast::<Journal>()
        }
    }

    /// Begins the script of a new supervisor.
    pub fn begin(&self, settings: u8) {
        self.bytes[0].store(settings, Relaxed);
        self.last.store(1, Relaxed);
        self.length.store(1, Relaxed);
    }

    /// Whether one more input of at most 64 KiB fits.
    pub fn has_room(&self) -> bool {
        self.length.load(Relaxed) + (1 << 17) < ROOM
    }

    /// Notes an input before it is tried.
    pub fn note(&self, input: &[u8]) {
        let start = self.length.load(Relaxed);
        let mut end = start;
        for byte in framed(input) {
            self.bytes[end].store(byte, Relaxed);
            end += 1;
        }
        self.last.store(start, Relaxed);
        self.length.store(end, Relaxed);
        self.executions.fetch_add(1, Relaxed);
    }

    /// All inputs of the last supervisor.
    pub fn script(&self) -> Script {
        Script::of_bytes(&self.copy(0))
    }

    /// The last input alone, for a supervisor of the same settings.
    pub fn last_alone(&self) -> Script {
        let last = [self.copy(0)[..1].to_vec(), self.copy(self.last.load(Relaxed))].concat();
        Script::of_bytes(&last)
    }

    fn copy(&self, from: usize) -> Vec<u8> {
        let bytes = self.bytes[..self.length.load(Relaxed).clamp(1, ROOM)].iter();
        bytes.skip(from).map(|byte| byte.load(Relaxed)).collect()
    }
}
