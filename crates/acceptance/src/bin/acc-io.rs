//! The kernel reads and writes memory that has been swapped out: read(2), write(2), readv(2),
//! O_DIRECT, io_uring with plain and registered buffers, pipes, sockets, process_vm_readv(2) and
//! process_vm_writev(2).
//!
//! `acc-io CASE MEBIBYTES` prints `ok CASE`.

use folioswap_acceptance::data::{self, Kind, PAGE, Random};
use folioswap_acceptance::memory::Mapping;
use io_uring::{IoUring, opcode, types};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Pages of one transfer.
const RUN: usize = 24;

/// Whether a file's data passes through the page cache.
#[derive(Clone, Copy)]
enum Caching {
    PageCache,
    Direct,
}

/// Whether the kernel has pinned the buffers of io_uring beforehand.
#[derive(Clone, Copy, PartialEq)]
enum Buffers {
    Plain,
    Registered,
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

/// io_uring with several transfers in flight.
fn uring(bytes: usize, kind: Buffers, caching: Caching) -> Outcome {
    const DEPTH: usize = 16;
    let mut ring = match IoUring::new(DEPTH as u32 * 2) {
        Ok(ring) => ring,
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
            println!("io_uring is not allowed here");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    let mut memory = evicted(bytes);
    let pages = bytes / PAGE;
    let mut buffers: Vec<usize> = (0..DEPTH).map(|index| index * (pages / DEPTH)).collect();
    let base = memory.as_mut_ptr();
    if kind == Buffers::Registered {
        let vectors: Vec<libc::iovec> = buffers
            .iter()
            .map(|page| libc::iovec { iov_base: base.wrapping_add(page * PAGE).cast(), iov_len: RUN * PAGE })
            .collect();
        // SAFETY: the buffers lie in `memory`, which outlives the ring's use of them.
        unsafe { ring.submitter().register_buffers(&vectors) }?;
    }
    let file = file(caching)?;
    let fd = types::Fd(file.as_raw_fd());
    let mut random = Random::new(9);
    let (length, run_bytes) = (RUN as u32 * PAGE as u32, (RUN * PAGE) as u64);
    for round in 1..=6u64 {
        // A plain write from other memory gives the file its contents.
        for index in 0..DEPTH {
            let source = content(round * 1000 + index as u64 * RUN as u64, RUN, round);
            file.write_all_at(&source, index as u64 * run_bytes)?;
        }
        if kind == Buffers::Plain {
            for (index, page) in buffers.iter_mut().enumerate() {
                let slice = (pages / DEPTH - RUN) as u64;
                *page = index * (pages / DEPTH) + random.below(slice) as usize;
            }
        }
        for back in [false, true] {
            for (index, page) in buffers.iter().enumerate() {
                let at = base.wrapping_add(page * PAGE);
                // The second half of the file takes the data that is written back.
                let offset = index as u64 * run_bytes + if back { DEPTH as u64 * run_bytes } else { 0 };
                let entry = match (back, kind) {
                    (false, Buffers::Plain) => opcode::Read::new(fd, at, length).offset(offset).build(),
                    (true, Buffers::Plain) => opcode::Write::new(fd, at, length).offset(offset).build(),
                    (false, Buffers::Registered) => {
                        opcode::ReadFixed::new(fd, at, length, index as u16).offset(offset).build()
                    }
                    (true, Buffers::Registered) => {
                        opcode::WriteFixed::new(fd, at, length, index as u16).offset(offset).build()
                    }
                };
                // SAFETY: the buffers live until the completions below have been seen.
                unsafe { ring.submission().push(&entry.user_data(index as u64)) }?;
            }
            ring.submit()?;
            // Pressure that wants to take these very pages, while the transfers are in flight.
            for _ in 0..2000 {
                let page = random.below(pages as u64) as usize;
                // SAFETY: in bounds; volatile, since the kernel may be writing there.
                std::hint::black_box(unsafe { base.add(page * PAGE).read_volatile() });
            }
            let mut seen = 0;
            while seen < DEPTH {
                ring.submit_and_wait(1)?;
                for completion in ring.completion() {
                    if completion.result() != length as i32 {
                        let error = io::Error::from_raw_os_error(-completion.result());
                        return Err(format!("transfer {}: {error}", completion.user_data()).into());
                    }
                    seen += 1;
                }
            }
            // A pass over all other memory, so that the buffers leave if they can.
            let mut sum = 0u8;
            for page in (0..pages).step_by(2) {
                // SAFETY: in bounds.
                sum = sum.wrapping_add(unsafe { base.add(page * PAGE + 100).read_volatile() });
            }
            std::hint::black_box(sum);
            for (index, page) in buffers.iter().enumerate() {
                // SAFETY: in bounds; no transfer is under way.
                let got = unsafe { std::slice::from_raw_parts(base.add(page * PAGE), RUN * PAGE) };
                expect(got, round * 1000 + index as u64 * RUN as u64, round)?;
            }
        }
        for index in 0..DEPTH {
            let mut got = Mapping::new(RUN * PAGE);
            file.read_exact_at(&mut got, (DEPTH + index) as u64 * run_bytes)?;
            expect(&got, round * 1000 + index as u64 * RUN as u64, round)?;
        }
        if kind == Buffers::Registered {
            // The program changes a pinned buffer, and the device must see the change in the next
            // round's write-back.
            for (index, page) in buffers.iter().enumerate() {
                // SAFETY: in bounds; no transfer is under way.
                let out = unsafe { std::slice::from_raw_parts_mut(base.add(page * PAGE), RUN * PAGE) };
                out.copy_from_slice(&content(7 + index as u64, RUN, 99));
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
            for (index, page) in buffers.iter().enumerate() {
                let entry = opcode::WriteFixed::new(fd, base.wrapping_add(page * PAGE), length, index as u16)
                    .offset(index as u64 * run_bytes)
                    .build();
                // SAFETY: as above.
                unsafe { ring.submission().push(&entry) }?;
            }
            ring.submit_and_wait(DEPTH)?;
            if ring.completion().any(|completion| completion.result() != length as i32) {
                return Err("write from a registered buffer failed".into());
            }
            for index in 0..DEPTH {
                let mut got = Mapping::new(RUN * PAGE);
                file.read_exact_at(&mut got, index as u64 * run_bytes)?;
                expect(&got, 7 + index as u64, 99)?;
            }
        }
    }
    Ok(())
}

/// Another process reads and writes the swapped-out memory of this one.
fn by_another(bytes: usize) -> Outcome {
    let memory = evicted(bytes);
    // SAFETY: single-threaded here.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let result = read_and_write_the_parent(&memory);
        if let Err(error) = &result {
            eprintln!("acc-io: {error}");
        }
        std::process::exit(i32::from(result.is_err()));
    }
    let mut status = 0;
    // SAFETY: waits for our own child.
    if unsafe { libc::waitpid(child, &raw mut status, 0) } != child || status != 0 {
        return Err(format!("the reading process ended with {status:#x}").into());
    }
    for page in runs(memory.len()) {
        let version = u64::from(is_written_by_another(page));
        expect(&memory[page * PAGE..][..RUN * PAGE], page as u64, version)?;
    }
    Ok(())
}

/// Whether the other process overwrites this transfer: it does every seventh.
fn is_written_by_another(page: usize) -> bool {
    page / RUN % 7 == 3
}

/// Runs in a child: compares and writes the parent's `memory` with process_vm_readv and
/// process_vm_writev, which wait for swapped-out pages, and through /proc/PID/mem, where the kernel
/// does not wait: it may refuse (EIO), but it never gives wrong bytes.
fn read_and_write_the_parent(memory: &Mapping) -> Outcome {
    // SAFETY: getppid has no memory effects.
    let parent = unsafe { libc::getppid() };
    let file = File::open(format!("/proc/{parent}/mem"))?;
    let mut buffer = Mapping::new(RUN * PAGE);
    let (mut refused, mut refused_when_in) = (0, 0);
    for page in runs(memory.len()) {
        let address = memory.as_ptr() as usize + page * PAGE;
        refused += u32::from(read_through_proc(&file, address, page, &mut buffer)? == Answer::Refused);
        buffer.fill(0);
        transfer(Direction::Read, parent, &mut buffer, address)?;
        expect(&buffer, page as u64, 0)?;
        // The page is resident now, or was a moment ago.
        refused_when_in +=
            u32::from(read_through_proc(&file, address, page, &mut buffer)? == Answer::Refused);
    }
    let all = (memory.len() / PAGE / RUN) as u32;
    eprintln!(
        "/proc/PID/mem: {refused} of {all} runs refused, {refused_when_in} when they had just been read"
    );
    if refused_when_in > all / 2 {
        return Err("/proc/PID/mem refuses also what is not swapped out".into());
    }
    for page in runs(memory.len()).filter(|&page| is_written_by_another(page)) {
        let mut fresh = content(page as u64, RUN, 1);
        transfer(Direction::Write, parent, &mut fresh, memory.as_ptr() as usize + page * PAGE)?;
    }
    Ok(())
}

/// The kernel's answer to a read of a whole transfer.
#[derive(PartialEq)]
enum Answer {
    Read,
    Refused,
}

/// Reads a transfer of another process's memory, and compares the part that was read.
fn read_through_proc(
    file: &File,
    address: usize,
    page: usize,
    buffer: &mut Mapping,
) -> Result<Answer, Box<dyn std::error::Error>> {
    buffer.fill(0);
    match file.read_at(buffer, address as u64) {
        // A part may precede the first swapped-out page; that much must be right.
        Ok(length) => {
            expect(&buffer[..length / PAGE * PAGE], page as u64, 0)?;
            Ok(if length == buffer.len() { Answer::Read } else { Answer::Refused })
        }
        Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(Answer::Refused),
        Err(error) => Err(error.into()),
    }
}

#[derive(Clone, Copy, Debug)]
enum Direction {
    Read,
    Write,
}

/// Copies the whole buffer from or to an address of another process.
fn transfer(direction: Direction, process: i32, buffer: &mut Mapping, address: usize) -> Outcome {
    let length = buffer.len();
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: length };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: length };
    // SAFETY: here only `buffer` is written; there, a range that the other process expects to be
    // written.
    let done = unsafe {
        match direction {
            Direction::Read => libc::process_vm_readv(process, &raw const local, 1, &raw const remote, 1, 0),
            Direction::Write => {
                libc::process_vm_writev(process, &raw const local, 1, &raw const remote, 1, 0)
            }
        }
    };
    if done != length as isize {
        return Err(
            format!("{direction:?} by another process: {done}, {}", io::Error::last_os_error()).into()
        );
    }
    Ok(())
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
