//! Transfers by io_uring, with plain and with registered buffers.

use crate::{Caching, Outcome, RUN, content, evicted, expect, file};
use folioswap_acceptance::data::{PAGE, Random};
use folioswap_acceptance::job::amount;
use folioswap_acceptance::memory::Mapping;
use io_uring::{IoUring, opcode, types};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// Whether the kernel has pinned the buffers of io_uring beforehand.
#[derive(Clone, Copy, PartialEq)]
pub enum Buffers {
    Plain,
    Registered,
}

/// io_uring with several transfers in flight.
pub fn uring(bytes: usize, kind: Buffers, caching: Caching) -> Outcome {
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
    for round in 1..=amount(3, 6) {
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
