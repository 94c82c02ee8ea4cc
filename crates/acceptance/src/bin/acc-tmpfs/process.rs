//! One process: its files, the contents that they must have, and its operations on them.

use crate::mapping::Mapping;
use crate::random::Random;
use folioswap_acceptance::data::PAGE;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Files of each process.
const FILES: usize = 6;
/// Bytes of the shared file that one process owns at a time.
const STRIPE: usize = 3000;

/// A file and the contents that it must have.
struct Known {
    path: PathBuf,
    file: File,
    bytes: Vec<u8>,
    /// A mapping that is kept while other operations go on, but not beyond a truncation, after
    /// which a load would rightly raise SIGBUS.
    mapping: Option<Mapping>,
    /// Whether the file has no name any more.
    unlinked: bool,
}

pub struct Process {
    directory: PathBuf,
    random: Random,
    files: Vec<Known>,
    size: usize,
    names: u64,
    shared: File,
    shared_map: Mapping,
    index: usize,
    processes: usize,
    stripes: Vec<Vec<u8>>,
}

pub type Done = Result<(), String>;

pub fn failed(what: &str) -> impl FnOnce(io::Error) -> String {
    let what = what.to_owned();
    move |error| format!("{what}: {error}")
}

/// Reports the first difference of two contents.
pub fn compare(what: &str, found: &[u8], expected: &[u8]) -> Done {
    if found == expected {
        return Ok(());
    }
    let at = found.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(found.len().min(expected.len()));
    let (a, b) = (found.get(at), expected.get(at));
    let pages = found.chunks(PAGE).zip(expected.chunks(PAGE)).filter(|(a, b)| a != b).count();
    Err(format!(
        "{what}: byte {at} of {} (expected {}) is {a:?}, not {b:?}; {pages} pages differ",
        found.len(),
        expected.len()
    ))
}

impl Process {
    pub fn new(
        directory: &Path,
        index: usize,
        processes: usize,
        seed: u64,
        size: usize,
    ) -> Result<Self, String> {
        let own = directory.join(format!("p{index}"));
        fs::create_dir_all(&own).map_err(failed("mkdir"))?;
        let shared = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(directory.join("shared"));
        let shared = shared.map_err(failed("shared"))?;
        let stripes = size / STRIPE / processes;
        let length = stripes * processes * STRIPE;
        shared.set_len(length as u64).map_err(failed("shared"))?;
        let shared_map = Mapping::new(&shared, length, libc::MAP_SHARED).map_err(failed("mmap of shared"))?;
        let mut process = Process {
            directory: own,
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            files: Vec::new(),
            size,
            names: 0,
            shared,
            shared_map,
            index,
            processes,
            stripes: vec![vec![0; STRIPE]; stripes],
        };
        for _ in 0..FILES {
            let file = process.create()?;
            process.files.push(file);
        }
        Ok(process)
    }

    fn name(&mut self) -> PathBuf {
        self.names += 1;
        self.directory.join(format!("f{}", self.names))
    }

    fn create(&mut self) -> Result<Known, String> {
        let path = self.name();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(failed("create"))?;
        // A new file is as large as any, so that all together are far larger than the limit.
        let mut bytes = Vec::new();
        for _ in 0..self.random.below(self.size) >> 18 {
            let more = self.random.bytes(1 << 18);
            file.write_all_at(&more, bytes.len() as u64).map_err(failed("write"))?;
            bytes.extend(more);
        }
        Ok(Known { path, file, bytes, mapping: None, unlinked: false })
    }

    /// A random range within `length`.
    fn range(&mut self, length: usize) -> (usize, usize) {
        let at = self.random.below(length);
        let most = if self.random.below(8) == 0 { 1 << 20 } else { 3 * PAGE };
        (at, (1 + self.random.below(most)).min(length - at))
    }

    fn step(&mut self) -> Done {
        if self.random.below(5) == 0 {
            return self.step_shared();
        }
        let which = self.random.below(FILES);
        let action = self.random.below(100);
        match action {
            0..20 => self.write(which),
            20..40 => self.read(which),
            40..55 => self.store(which),
            55..68 => self.load(which),
            68..72 => self.private(which),
            72..77 => self.truncate(which),
            77..82 => self.punch(which),
            82..84 => self.allocate(which),
            84..86 => self.seek(which),
            86..90 => self.copy(which),
            90..93 => self.rename(which),
            93..95 => self.link(which),
            95..97 => self.unlink(which),
            97..98 => self.replace(which),
            _ => self.files[which].file.sync_data().map_err(failed("fdatasync")),
        }
    }

    fn write(&mut self, which: usize) -> Done {
        let (at, length) = self.range(self.size);
        let bytes = self.random.bytes(length);
        let known = &mut self.files[which];
        known.file.write_all_at(&bytes, at as u64).map_err(failed("write"))?;
        if known.bytes.len() < at + length {
            known.bytes.resize(at + length, 0);
        }
        known.bytes[at..at + length].copy_from_slice(&bytes);
        Ok(())
    }

    fn read(&mut self, which: usize) -> Done {
        let (at, length) = self.range(self.files[which].bytes.len() + 1);
        let known = &self.files[which];
        let mut found = vec![0xee; length];
        let mut got = 0;
        while got < length {
            match known.file.read_at(&mut found[got..], (at + got) as u64).map_err(failed("read"))? {
                0 => break,
                more => got += more,
            }
        }
        let end = (at + length).min(known.bytes.len());
        compare(
            &format!("read of {} at {at}", known.path.display()),
            &found[..got],
            &known.bytes[at.min(end)..end],
        )
    }

    /// The mapping of a file, created now if there is none. `None` means that the file is empty.
    fn mapped(&mut self, which: usize) -> Result<Option<&Mapping>, String> {
        let known = &mut self.files[which];
        if known.bytes.is_empty() {
            return Ok(None);
        }
        if known.mapping.as_ref().is_none_or(|mapping| mapping.length != known.bytes.len()) {
            known.mapping = None;
            known.mapping =
                Some(Mapping::new(&known.file, known.bytes.len(), libc::MAP_SHARED).map_err(failed("mmap"))?);
        }
        Ok(known.mapping.as_ref())
    }

    fn store(&mut self, which: usize) -> Done {
        let (at, length) = self.range(self.files[which].bytes.len().max(1));
        let bytes = self.random.bytes(length);
        let Some(mapping) = self.mapped(which)? else { return Ok(()) };
        mapping.write(at, &bytes);
        self.files[which].bytes[at..at + length].copy_from_slice(&bytes);
        if self.random.below(4) == 0 {
            self.files[which].mapping = None;
        }
        Ok(())
    }

    fn load(&mut self, which: usize) -> Done {
        let (at, length) = self.range(self.files[which].bytes.len().max(1));
        let Some(mapping) = self.mapped(which)? else { return Ok(()) };
        let found = mapping.read(at, length);
        let known = &self.files[which];
        compare(&format!("load from {} at {at}", known.path.display()), &found, &known.bytes[at..at + length])
    }

    /// Stores to a private mapping must not reach the file.
    fn private(&mut self, which: usize) -> Done {
        let (at, length) = self.range(self.files[which].bytes.len().max(1));
        let bytes = self.random.bytes(length);
        let known = &self.files[which];
        if known.bytes.is_empty() {
            return Ok(());
        }
        let mapping = Mapping::new(&known.file, known.bytes.len(), libc::MAP_PRIVATE)
            .map_err(failed("private mmap"))?;
        compare("private mapping", &mapping.read(at, length), &known.bytes[at..at + length])?;
        mapping.write(at, &bytes);
        compare("private mapping, written", &mapping.read(at, length), &bytes)?;
        drop(mapping);
        self.read(which)
    }

    fn truncate(&mut self, which: usize) -> Done {
        let length = self.random.below(self.size);
        let known = &mut self.files[which];
        known.mapping = None;
        known.file.set_len(length as u64).map_err(failed("ftruncate"))?;
        known.bytes.resize(length, 0);
        let found = known.file.metadata().map_err(failed("fstat"))?.len();
        if found == length as u64 {
            Ok(())
        } else {
            Err(format!("size {found} after truncation to {length}"))
        }
    }

    fn punch(&mut self, which: usize) -> Done {
        let (at, length) = self.range(self.files[which].bytes.len().max(1));
        let known = &mut self.files[which];
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        fallocate(&known.file, mode, at, length).map_err(failed("punch"))?;
        let end = (at + length).min(known.bytes.len());
        known.bytes[at.min(end)..end].fill(0);
        Ok(())
    }

    fn allocate(&mut self, which: usize) -> Done {
        let (at, length) = self.range(self.size);
        let keep = self.random.below(2) == 0;
        let known = &mut self.files[which];
        fallocate(&known.file, if keep { libc::FALLOC_FL_KEEP_SIZE } else { 0 }, at, length)
            .map_err(failed("fallocate"))?;
        if !keep && known.bytes.len() < at + length {
            known.bytes.resize(at + length, 0);
        }
        Ok(())
    }

    /// Every byte of a hole must be zero.
    fn seek(&mut self, which: usize) -> Done {
        let at = self.random.below(self.files[which].bytes.len().max(1));
        let known = &self.files[which];
        // SAFETY: plain system calls.
        let (data, size) =
            unsafe { (libc::lseek(known.file.as_raw_fd(), at as i64, libc::SEEK_DATA), known.bytes.len()) };
        let data = if data < 0 { size } else { data as usize };
        match known.bytes.get(at..data) {
            Some(skipped) if skipped.iter().any(|&byte| byte != 0) => {
                Err(format!("SEEK_DATA from {at} of {} skips data before {data}", known.path.display()))
            }
            _ => Ok(()),
        }
    }

    fn copy(&mut self, which: usize) -> Done {
        let from = (which + 1) % FILES;
        let (at, length) = self.range(self.files[from].bytes.len().max(1));
        let to = self.random.below(self.size);
        let length = length.min(self.files[from].bytes.len().saturating_sub(at));
        if length == 0 {
            return Ok(());
        }
        let mut done = 0;
        while done < length {
            let (mut source, mut target) = ((at + done) as i64, (to + done) as i64);
            // SAFETY: both offsets live through the call.
            let copied = unsafe {
                libc::copy_file_range(
                    self.files[from].file.as_raw_fd(),
                    &raw mut source,
                    self.files[which].file.as_raw_fd(),
                    &raw mut target,
                    length - done,
                    0,
                )
            };
            match copied {
                0 => return Err("copy_file_range copied nothing".to_owned()),
                n if n < 0 => return Err(failed("copy_file_range")(io::Error::last_os_error())),
                n => done += n as usize,
            }
        }
        let bytes = self.files[from].bytes[at..at + length].to_vec();
        let known = &mut self.files[which];
        if known.bytes.len() < to + length {
            known.bytes.resize(to + length, 0);
        }
        known.bytes[to..to + length].copy_from_slice(&bytes);
        Ok(())
    }

    fn rename(&mut self, which: usize) -> Done {
        let name = self.name();
        let known = &mut self.files[which];
        if known.unlinked {
            return Ok(());
        }
        fs::rename(&known.path, &name).map_err(failed("rename"))?;
        if known.path.exists() {
            return Err(format!("{} is still there", known.path.display()));
        }
        known.path = name;
        Ok(())
    }

    fn link(&mut self, which: usize) -> Done {
        let name = self.name();
        let known = &self.files[which];
        if known.unlinked {
            return Ok(());
        }
        fs::hard_link(&known.path, &name).map_err(failed("link"))?;
        let found = fs::read(&name).map_err(failed("read of a link"))?;
        compare("another link", &found, &known.bytes)?;
        fs::remove_file(&name).map_err(failed("unlink of a link"))
    }

    fn unlink(&mut self, which: usize) -> Done {
        let known = &mut self.files[which];
        if !known.unlinked {
            known.unlinked = true;
            fs::remove_file(&known.path).map_err(failed("unlink"))?;
        }
        Ok(())
    }

    /// Reads a whole file, and begins a new one in its place.
    fn replace(&mut self, which: usize) -> Done {
        self.verify(which)?;
        let new = self.create()?;
        let old = std::mem::replace(&mut self.files[which], new);
        if old.unlinked { Ok(()) } else { fs::remove_file(&old.path).map_err(failed("unlink")) }
    }

    fn verify(&self, which: usize) -> Done {
        let known = &self.files[which];
        let mut found = vec![0; known.bytes.len() + 1];
        let mut got = 0;
        loop {
            match known.file.read_at(&mut found[got..], got as u64).map_err(failed("read"))? {
                0 => break,
                more => got += more,
            }
        }
        compare(&format!("whole of {}", known.path.display()), &found[..got], &known.bytes)
    }

    fn stripe_at(&self, stripe: usize) -> usize {
        (stripe * self.processes + self.index) * STRIPE
    }

    fn step_shared(&mut self) -> Done {
        let stripe = self.random.below(self.stripes.len());
        let place = self.stripe_at(stripe);
        let (at, length) = self.range(STRIPE);
        match self.random.below(4) {
            0 => {
                let bytes = self.random.bytes(length);
                self.shared.write_all_at(&bytes, (place + at) as u64).map_err(failed("write to shared"))?;
                self.stripes[stripe][at..at + length].copy_from_slice(&bytes);
            }
            1 => {
                let bytes = self.random.bytes(length);
                self.shared_map.write(place + at, &bytes);
                self.stripes[stripe][at..at + length].copy_from_slice(&bytes);
            }
            2 => {
                let mut found = vec![0; length];
                self.shared
                    .read_exact_at(&mut found, (place + at) as u64)
                    .map_err(failed("read of shared"))?;
                compare("read of shared", &found, &self.stripes[stripe][at..at + length])?;
            }
            _ => {
                let found = self.shared_map.read(place + at, length);
                compare("load from shared", &found, &self.stripes[stripe][at..at + length])?;
            }
        }
        Ok(())
    }

    pub fn run(&mut self, time: Duration) -> Result<u64, String> {
        let start = Instant::now();
        let mut steps = 0;
        while start.elapsed() < time {
            self.step().map_err(|error| format!("step {steps}: {error}"))?;
            steps += 1;
        }
        (0..FILES).try_for_each(|which| self.verify(which))?;
        for (stripe, expected) in self.stripes.iter().enumerate() {
            let found = self.shared_map.read(self.stripe_at(stripe), STRIPE);
            compare("stripe of shared at the end", &found, expected)?;
        }
        Ok(steps)
    }
}

fn fallocate(file: &File, mode: i32, at: usize, length: usize) -> io::Result<()> {
    // SAFETY: a plain system call.
    match unsafe { libc::fallocate(file.as_raw_fd(), mode, at as i64, length as i64) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
