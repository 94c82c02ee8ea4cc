//! The throughput of the file device on a file or block device, for `bench/devices.py`, which puts
//! fio beside it: `throughput PATH BYTES SECONDS`. All of BYTES from the start of PATH on is
//! overwritten.
//!
//! Prints a line `read SIZE DEPTH MB/s`, `write SIZE 1 MB/s` or `latency p50 p99 (ns)` for each
//! point. Reads go through the ring with DEPTH of them under way, as the fault handler has them, or
//! one after the other (depth 1). Writes go one after the other, as the evictor makes them.

#[path = "../tests/common/mod.rs"]
mod common;

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use common::data::{PageKind, Rng};
use common::device::AlignedRun;
use folioswap_devices::read_ring::ReadRing;
use folioswap_devices::{FileDevice, FileSlot, PAGE_SIZE};
use rustix::fs::{Mode, OFlags, open};

const SIZES: [usize; 6] = [64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20];
const DEPTHS: [usize; 6] = [1, 2, 4, 8, 16, 32];

struct Bench {
    file: OwnedFd,
    bytes: u64,
    time: Duration,
}

impl Bench {
    fn device(&self) -> FileDevice<'_> {
        FileDevice::new(self.file.as_fd())
    }

    /// Goes through the file in order for the available time; MB/s.
    fn in_order(&self, size: usize, mut operation: impl FnMut(FileSlot)) -> f64 {
        let (begin, mut done) = (Instant::now(), 0u64);
        while begin.elapsed() < self.time {
            operation(FileSlot::new(done % self.bytes / PAGE_SIZE as u64).unwrap());
            done += size as u64;
        }
        done as f64 / begin.elapsed().as_secs_f64() / 1e6
    }

    fn write(&self, size: usize) -> f64 {
        let mut run = AlignedRun::new(size / PAGE_SIZE);
        for (seed, page) in run.bytes().chunks_exact_mut(PAGE_SIZE).enumerate() {
            page.copy_from_slice(&PageKind::Incompressible.page(seed as u64));
        }
        self.in_order(size, |slot| self.device().write(slot, run.bytes()).unwrap())
    }

    fn read(&self, size: usize, depth: usize) -> f64 {
        let mut buffers: Vec<AlignedRun> = (0..depth).map(|_| AlignedRun::new(size / PAGE_SIZE)).collect();
        if depth == 1 {
            return self.in_order(size, |slot| self.device().read(slot, buffers[0].bytes()).unwrap());
        }
        let mut ring = ReadRing::new(32, Box::leak(Box::default())).unwrap();
        let mut free: Vec<usize> = (0..depth).collect();
        let megabytes = self.in_order(size, |slot| {
            while free.is_empty() {
                collect(&mut ring, &mut free, size);
            }
            let place = free.pop().unwrap();
            let buffer = NonNull::new(buffers[place].bytes().as_mut_ptr()).unwrap();
            // SAFETY: the buffer is not touched before its read has ended; all have ended below.
            unsafe { ring.begin(self.device(), slot, buffer, size, place as u64) }.unwrap();
        });
        while ring.under_way() > 0 {
            collect(&mut ring, &mut free, size);
        }
        megabytes
    }

    /// Single pages in random order, one after the other: p50 and p99 in nanoseconds.
    fn latency(&self) -> (u64, u64) {
        let (mut page, mut rng) = (AlignedRun::new(1), Rng::new(1));
        let begin = Instant::now();
        let mut times = Vec::new();
        while begin.elapsed() < self.time {
            let slot = FileSlot::new(rng.below(self.bytes / PAGE_SIZE as u64)).unwrap();
            let one = Instant::now();
            self.device().read(slot, page.bytes()).unwrap();
            times.push(one.elapsed().as_nanos() as u64);
        }
        times.sort_unstable();
        (times[times.len() / 2], times[times.len() * 99 / 100])
    }
}

fn collect(ring: &mut ReadRing, free: &mut Vec<usize>, size: usize) {
    let ended = ring.ended();
    if ended.is_none() {
        let mut waiting = [rustix::event::PollFd::new(ring, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut waiting, None).unwrap();
    }
    for ended in ended.into_iter().chain(std::iter::from_fn(|| ring.ended())) {
        assert_eq!(ended.read, Ok(size));
        free.push(ended.tag as usize);
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let [path, bytes, seconds] = &words[..] else {
        println!("usage: throughput PATH BYTES SECONDS (all of it is overwritten); see bench/devices.py");
        return;
    };
    let file = open(&**path, OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let bench = Bench {
        file,
        bytes: bytes.parse().unwrap(),
        time: Duration::from_secs_f64(seconds.parse().unwrap()),
    };
    for size in SIZES {
        println!("write {size} 1 {:.0}", bench.write(size));
    }
    for size in SIZES {
        for depth in DEPTHS {
            println!("read {size} {depth} {:.0}", bench.read(size, depth));
        }
    }
    let (p50, p99) = bench.latency();
    println!("latency {p50} {p99}");
}
