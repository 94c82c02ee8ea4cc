//! Touches memory that does not fit in clusters: groups of neighbouring pages, the groups in random
//! order, the pages of each group in an order of their own. Each page is compared as a whole. With
//! `--disturb yes` the group changes while it is touched: pages are written, given back
//! (MADV_DONTNEED), mapped anew, paged out at once (MADV_PAGEOUT), and a forked child goes on with
//! the rest of the group beside its parent.
//!
//! `acc-clusters --size 256M [--cluster PAGES] [--groups N] [--threads N] [--disturb yes|no]
//! [--seed N]`
//!
//! A cluster of 1 is random access. The program prints one line that depends on nothing but the
//! arguments, and on standard error the times of the touches.

use folioswap_acceptance::data::{self, Kind, PAGE, Random};
use folioswap_acceptance::memory::{Mapping, parse_size};
use folioswap_bench::histogram::Histogram;
use std::process::ExitCode;
use std::time::{Duration, Instant};

struct Arguments {
    size: u64,
    cluster: usize,
    groups: u64,
    threads: usize,
    disturbed: bool,
    seed: u64,
}

fn parse() -> Arguments {
    let mut parsed =
        Arguments { size: 64 << 20, cluster: 8, groups: 1000, threads: 1, disturbed: false, seed: 1 };
    let mut arguments = std::env::args().skip(1);
    while let (Some(name), Some(value)) = (arguments.next(), arguments.next()) {
        let number = || value.parse().expect("a number");
        match name.as_str() {
            "--size" => parsed.size = parse_size(&value).expect("a size"),
            "--cluster" => parsed.cluster = number() as usize,
            "--groups" => parsed.groups = number(),
            "--threads" => parsed.threads = number() as usize,
            "--disturb" => parsed.disturbed = value == "yes",
            "--seed" => parsed.seed = number(),
            _ => panic!("unknown option {name}"),
        }
    }
    parsed
}

/// One thread's share of the memory, and the contents that it must have.
struct Share<'a> {
    memory: &'a mut [u8],
    /// The version of each page's contents; 0 is a page of zeroes.
    versions: &'a mut [u8],
    first_page: u64,
    seed: u64,
    latencies: Histogram,
    touched_for: Duration,
}

impl Share<'_> {
    fn page(&mut self, page: usize) -> &mut [u8] {
        &mut self.memory[page * PAGE..][..PAGE]
    }

    fn fill(&mut self, page: usize) {
        self.versions[page] = self.versions[page] % 200 + 1;
        let (seed, version, number) =
            (self.seed, u64::from(self.versions[page]), self.first_page + page as u64);
        data::fill(self.page(page), Kind::Incompressible, seed, version, number);
    }

    fn check(&mut self, page: usize) -> Result<(), String> {
        let (seed, version, number) =
            (self.seed, u64::from(self.versions[page]), self.first_page + page as u64);
        let bytes = self.page(page);
        match version {
            0 if bytes.iter().all(|&byte| byte == 0) => Ok(()),
            0 => Err(format!("page {number}: not zero after it was given back")),
            version => data::check(bytes, Kind::Incompressible, seed, version, number),
        }
    }

    fn touch(&mut self, page: usize) -> Result<(), String> {
        let start = Instant::now();
        // SAFETY: within the page, aligned. Volatile: the touch is what is timed.
        unsafe { self.page(page).as_ptr().cast::<u64>().read_volatile() };
        let took = start.elapsed();
        self.latencies.add(took.as_nanos() as u64);
        self.touched_for += took;
        self.check(page)
    }

    /// Makes the pages zeroes, by one of two ways.
    fn give_back(&mut self, pages: std::ops::Range<usize>, random: &mut Random) {
        let (start, bytes) = (self.page(pages.start).as_mut_ptr().cast(), pages.len() * PAGE);
        let done = if random.below(2) == 0 {
            // SAFETY: our own pages, which nobody borrows.
            unsafe { libc::madvise(start, bytes, libc::MADV_DONTNEED) == 0 }
        } else {
            let (access, flags) = (
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
            );
            // SAFETY: over our own pages, which nobody borrows.
            unsafe { libc::mmap(start, bytes, access, flags, -1, 0) == start }
        };
        assert!(done, "{}", std::io::Error::last_os_error());
        self.versions[pages].fill(0);
    }

    /// Swaps the pages out at once (MADV_PAGEOUT), so that the memory they free is soon used again.
    fn page_out(&mut self, pages: std::ops::Range<usize>) {
        let (start, bytes) = (self.page(pages.start).as_mut_ptr().cast(), pages.len() * PAGE);
        // SAFETY: our own pages; their contents stay.
        let done = unsafe { libc::madvise(start, bytes, libc::MADV_PAGEOUT) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    }

    /// Disturbs the group while it is being touched. Returns a child that goes on by itself.
    fn disturb(
        &mut self,
        (first, cluster): (usize, usize),
        rest: &[usize],
        random: &mut Random,
    ) -> Option<libc::pid_t> {
        let other = rest[random.below(rest.len() as u64) as usize];
        match random.below(40) {
            0..4 => self.fill(other),
            4 => self.give_back(other..other + 1, random),
            5 => {
                let last = rest.iter().copied().max().unwrap_or(first);
                self.give_back(first..last + 1, random);
            }
            6 => {
                // The whole group gets other contents, in the memory that it has just freed.
                let all = first..first + cluster;
                self.give_back(all.clone(), random);
                all.clone().for_each(|page| self.fill(page));
                self.page_out(all);
            }
            7..11 => {
                // Half of the group is written before all of it leaves.
                (0..cluster / 2).for_each(|_| self.fill(first + random.below(cluster as u64) as usize));
                self.page_out(first..first + cluster);
            }
            11 if random.below(8) == 0 => {
                // SAFETY: the child calls nothing that a thread of its parent's might have locked.
                match unsafe { libc::fork() } {
                    0 => {
                        let wrong = rest.iter().any(|&page| self.check(page).is_err());
                        // SAFETY: ends the child.
                        unsafe { libc::_exit(i32::from(wrong)) }
                    }
                    -1 => panic!("fork: {}", std::io::Error::last_os_error()),
                    pid => return Some(pid),
                }
            }
            _ => {}
        }
        None
    }

    fn run(&mut self, arguments: &Arguments, index: u64) -> Result<(), String> {
        let mut random = Random::new(self.seed ^ 0x636c_7573 ^ index << 32);
        let groups = (self.versions.len() / arguments.cluster) as u64;
        let mut order: Vec<usize> = (0..arguments.cluster).collect();
        for _ in 0..arguments.groups / arguments.threads as u64 {
            let first = random.below(groups) as usize * arguments.cluster;
            for at in (1..order.len()).rev() {
                order.swap(at, random.below(at as u64 + 1) as usize);
            }
            let pages: Vec<usize> = order.iter().map(|at| first + at).collect();
            let mut children = Vec::new();
            for (done, &page) in pages.iter().enumerate() {
                self.touch(page)?;
                let rest = &pages[done + 1..];
                if arguments.disturbed && !rest.is_empty() {
                    children.extend(self.disturb((first, arguments.cluster), rest, &mut random));
                }
            }
            if arguments.disturbed {
                // Touch the group once more: some of its pages may have left meanwhile.
                pages.iter().try_for_each(|&page| self.touch(page))?;
            }
            for pid in children {
                let mut status = 0;
                // SAFETY: waits for our own child.
                if unsafe { libc::waitpid(pid, &raw mut status, 0) } != pid || status != 0 {
                    return Err(format!("a child found something wrong in group {first}: status {status}"));
                }
            }
        }
        (0..self.versions.len()).try_for_each(|page| self.check(page))
    }
}

fn main() -> ExitCode {
    let arguments = parse();
    let pages = (arguments.size as usize / PAGE).next_multiple_of(arguments.threads * arguments.cluster);
    let each = pages / arguments.threads;
    let mut memory = Mapping::new(pages * PAGE);
    let mut versions = vec![0u8; pages];
    let start = Instant::now();
    let results: Vec<Result<(Histogram, Duration), String>> = std::thread::scope(|scope| {
        let shares = memory.chunks_exact_mut(each * PAGE).zip(versions.chunks_exact_mut(each));
        let threads: Vec<_> = shares
            .enumerate()
            .map(|(index, (memory, versions))| {
                let arguments = &arguments;
                scope.spawn(move || {
                    let (first_page, seed) = ((index * each) as u64, arguments.seed);
                    let latencies = Histogram::default();
                    let touched_for = Duration::ZERO;
                    let mut share = Share { memory, versions, first_page, seed, latencies, touched_for };
                    (0..each).for_each(|page| share.fill(page));
                    share.run(arguments, index as u64).map(|()| (share.latencies, share.touched_for))
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let (mut latencies, mut touched_for) = (Histogram::default(), Duration::ZERO);
    for result in results {
        match result {
            Ok((found, took)) => {
                latencies.merge(&found);
                touched_for += took;
            }
            Err(error) => {
                eprintln!("acc-clusters: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    eprintln!(
        "{:.2} s in all; touches {:.3} s: a touch p50 {} ns, p90 {} ns, p99 {} ns",
        start.elapsed().as_secs_f64(),
        touched_for.as_secs_f64(),
        latencies.percentile(0.5),
        latencies.percentile(0.9),
        latencies.percentile(0.99)
    );
    println!("ok {} groups of {} in {} bytes", arguments.groups, arguments.cluster, arguments.size);
    ExitCode::SUCCESS
}
