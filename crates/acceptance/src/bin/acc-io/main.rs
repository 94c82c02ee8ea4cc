//! The kernel reads and writes memory that has been swapped out: read(2), write(2), readv(2),
//! O_DIRECT, io_uring with plain and registered buffers, pipes, sockets, process_vm_readv(2) and
//! process_vm_writev(2).
//!
//! `acc-io CASE MEBIBYTES` prints `ok CASE`.

mod another_process;
mod uring;

use another_process::by_another;
use folioswap_acceptance::data::{self, Kind, PAGE, Random};
use folioswap_acceptance::memory::Mapping;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::FromRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use uring::{Buffers, uring};

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Pages of one transfer.
const RUN: usize = 24;

/// Whether a file's data passes through the page cache.
#[derive(Clone, Copy)]
enum Caching {
    PageCache,
    Direct,
}

/// Memory whose page `n` holds version 0 of page `n`, larger than the limit: most of it is swapped
/// out.
fn evicted(bytes: usize) -> Mapping {
    let mut memory = Mapping::new(bytes);
    for (page, out) in memory.chunks_exact_mut(PAGE).enumerate() {
        data::fill(out, Kind::Mixed, 1, 0, page as u64);
        // Stamped pages keep what is behind their first word: zero, here.
    }
    memory
}

fn expect(bytes: &[u8], first_page: u64, version: u64) -> Outcome {
    for (index, page) in bytes.chunks_exact(PAGE).enumerate() {
        data::check(page, Kind::Mixed, 1, version, first_page + index as u64)?;
    }
    Ok(())
}

/// A page-aligned buffer of `pages` pages with the contents of pages `first..` in `version`.
fn content(first: u64, pages: usize, version: u64) -> Mapping {
    let mut buffer = Mapping::new(pages * PAGE);
    for (index, out) in buffer.chunks_exact_mut(PAGE).enumerate() {
        data::fill(out, Kind::Mixed, 1, version, first + index as u64);
    }
    buffer
}

fn file(caching: Caching) -> io::Result<File> {
    let flags = match caching {
        Caching::PageCache => libc::O_TMPFILE,
        Caching::Direct => libc::O_TMPFILE | libc::O_DIRECT,
    };
    // O_TMPFILE without write-back to a name: nothing is left behind.
    File::options().read(true).write(true).custom_flags(flags).open("/var/tmp")
}

/// The first pages of all transfers, in an order that jumps.
fn runs(bytes: usize) -> impl Iterator<Item = usize> {
    let count = bytes / PAGE / RUN;
    // A step that shares no factor with the count visits each transfer once.
    let step = (count / 2..).find(|step| gcd(*step, count) == 1).unwrap_or(1);
    (0..count).map(move |index| index * step % count * RUN)
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Writes all of the memory to a file, reads it back into other swapped-out memory, and compares
/// there.
fn through_file(bytes: usize, caching: Caching) -> Outcome {
    let half = bytes / 2 / (PAGE * RUN) * PAGE * RUN;
    let (from, mut to) = (evicted(half), evicted(half));
    let file = file(caching)?;
    for page in runs(half) {
        file.write_all_at(&from[page * PAGE..][..RUN * PAGE], (page * PAGE) as u64)?;
    }
    for page in runs(half) {
        let target = (page + half / PAGE / 2 / RUN * RUN) % (half / PAGE);
        file.read_exact_at(&mut to[target * PAGE..][..RUN * PAGE], (page * PAGE) as u64)?;
    }
    for page in runs(half) {
        let target = (page + half / PAGE / 2 / RUN * RUN) % (half / PAGE);
        expect(&to[target * PAGE..][..RUN * PAGE], page as u64, 0)?;
    }
    expect(&from, 0, 0)
}

/// Transfers vectors of single pages from all over the memory, also at odd offsets.
fn vectored(bytes: usize) -> Outcome {
    let half = bytes / 2;
    let (from, mut to) = (evicted(half), evicted(half));
    let mut file = file(Caching::PageCache)?;
    let pages = half / PAGE;
    let mut random = Random::new(5);
    for _ in 0..60 {
        let picked: Vec<usize> = (0..64).map(|_| random.below(pages as u64) as usize).collect();
        let slices: Vec<IoSlice> = picked.iter().map(|&p| IoSlice::new(&from[p * PAGE..][..PAGE])).collect();
        file.seek(SeekFrom::Start(0))?;
        if file.write_vectored(&slices)? != 64 * PAGE {
            return Err("short writev".into());
        }
        let mut targets: Vec<usize> = (0..64).map(|_| random.below(pages as u64 / 64) as usize).collect();
        for (index, target) in targets.iter_mut().enumerate() {
            *target += index * (pages / 64);
        }
        {
            let mut rest: &mut [u8] = &mut to;
            let mut passed = 0;
            let mut slices = Vec::new();
            for &target in &targets {
                let (_, tail) = rest.split_at_mut(target * PAGE - passed);
                let (page, tail) = tail.split_at_mut(PAGE);
                slices.push(IoSliceMut::new(page));
                rest = tail;
                passed = (target + 1) * PAGE;
            }
            file.seek(SeekFrom::Start(0))?;
            if file.read_vectored(&mut slices)? != 64 * PAGE {
                return Err("short readv".into());
            }
        }
        for (&target, &page) in targets.iter().zip(&picked) {
            data::check(&to[target * PAGE..][..PAGE], Kind::Mixed, 1, 0, page as u64)?;
        }
        // The range is unaligned and crosses pages.
        let (start, length) = (random.below((half - 50_000) as u64) as usize, 30_001);
        file.write_all_at(&from[start..start + length], 0)?;
        let target = random.below((half - 50_000) as u64) as usize;
        file.read_exact_at(&mut to[target..target + length], 0)?;
        if to[target..target + length] != from[start..start + length] {
            return Err(format!("{length} bytes from {start} to {target} differ").into());
        }
    }
    Ok(())
}

/// One thread writes from swapped-out memory, another reads into swapped-out memory.
fn through_stream(bytes: usize, mut writer: impl Write + Send, mut reader: impl Read + Send) -> Outcome {
    let half = bytes / 2 / (PAGE * RUN) * PAGE * RUN;
    let from = evicted(half);
    let mut to = evicted(half);
    std::thread::scope(|scope| {
        let from = &from;
        let sender = scope.spawn(move || -> io::Result<()> {
            for page in runs(half) {
                writer.write_all(&from[page * PAGE..][..RUN * PAGE])?;
            }
            Ok(())
        });
        for page in runs(half) {
            // The target is the mirrored place, so that the kernel overwrites memory that was cold.
            let target = half / PAGE - RUN - page;
            reader.read_exact(&mut to[target * PAGE..][..RUN * PAGE])?;
        }
        sender.join().expect("no panic")
    })?;
    for page in runs(half) {
        let target = half / PAGE - RUN - page;
        expect(&to[target * PAGE..][..RUN * PAGE], page as u64, 0)?;
    }
    expect(&from, 0, 0)
}

fn pipe(bytes: usize) -> Outcome {
    let mut ends = [0; 2];
    // SAFETY: two descriptors are written.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error().into());
    }
    // SAFETY: both are ours alone.
    let [reader, writer] = ends.map(|end| unsafe { File::from_raw_fd(end) });
    through_stream(bytes, writer, reader)
}

fn socket(bytes: usize) -> Outcome {
    let (a, b) = UnixStream::pair()?;
    through_stream(bytes, a, b)
}

/// System calls that write small results into swapped-out memory, and read names from it.
fn small_calls(bytes: usize) -> Outcome {
    let mut memory = evicted(bytes);
    let pages = bytes / PAGE;
    let mut random = Random::new(3);
    for n in 0..5000 {
        let page = random.below(pages as u64) as usize;
        let at = memory[page * PAGE..][..PAGE].as_mut_ptr();
        match n % 4 {
            0 => {
                // SAFETY: the page has room for a stat.
                let result = unsafe { libc::stat(c"/etc/passwd".as_ptr(), at.cast()) };
                // SAFETY: stat has written it.
                let size = unsafe { (*at.cast::<libc::stat>()).st_size };
                if result != 0 || size as u64 != std::fs::metadata("/etc/passwd")?.len() {
                    return Err(format!("stat into page {page}: {result}, size {size}").into());
                }
            }
            1 => {
                // SAFETY: the page has room for a timespec.
                let result = unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_REALTIME, at) };
                // SAFETY: it has been written.
                let seconds = unsafe { *at.cast::<i64>() };
                if result != 0 || seconds < 1_600_000_000 {
                    return Err(format!("clock_gettime into page {page}: {result}, {seconds}").into());
                }
            }
            2 => {
                // SAFETY: the page has room for a path.
                let got = unsafe { libc::getcwd(at.cast(), PAGE) };
                if got.is_null() {
                    return Err(io::Error::last_os_error().into());
                }
            }
            _ => {
                // The name lies in swapped-out memory.
                let far = random.below(pages as u64) as usize;
                memory[far * PAGE..][..12].copy_from_slice(b"/etc/passwd\0");
                for _ in 0..20 {
                    let other = random.below(pages as u64) as usize;
                    std::hint::black_box(memory[other * PAGE + 99]);
                }
                // SAFETY: a C string.
                if unsafe { libc::access(memory[far * PAGE..].as_ptr().cast(), libc::R_OK) } != 0 {
                    return Err(format!("access: {}", io::Error::last_os_error()).into());
                }
                data::fill(&mut memory[far * PAGE..][..PAGE], Kind::Two, 1, 0, far as u64);
            }
        }
        let out = &mut memory[page * PAGE..][..PAGE];
        data::fill(out, Kind::Incompressible, 1, 0, page as u64);
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, case, size] = arguments.as_slice() else {
        eprintln!("acc-io CASE MEBIBYTES");
        return ExitCode::from(2);
    };
    let bytes = size.parse::<usize>().expect("a number") << 20;
    let result = match case.as_str() {
        "file" => through_file(bytes, Caching::PageCache),
        "direct" => through_file(bytes, Caching::Direct),
        "vectored" => vectored(bytes),
        "pipe" => pipe(bytes),
        "socket" => socket(bytes),
        "uring" => uring(bytes, Buffers::Plain, Caching::PageCache),
        "uring-direct" => uring(bytes, Buffers::Plain, Caching::Direct),
        "uring-registered" => uring(bytes, Buffers::Registered, Caching::PageCache),
        "uring-registered-direct" => uring(bytes, Buffers::Registered, Caching::Direct),
        "another-process" => by_another(bytes),
        "small-calls" => small_calls(bytes),
        _ => Err(format!("no such case: {case}").into()),
    };
    if let Err(error) = result {
        eprintln!("acc-io {case}: {error}");
        return ExitCode::FAILURE;
    }
    println!("ok {case}");
    ExitCode::SUCCESS
}
