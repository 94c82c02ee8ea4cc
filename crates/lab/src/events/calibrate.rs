//! Measures the costs on the running machine. Each figure is the median of several rounds, in
//! processor time, so that other work on the machine disturbs it less; the transfer of a line, for
//! which two processors are needed at once, is the best of many short bursts.

use super::costs::{Costs, CostsFile, PagesBy};
use crate::allocator::{Allocator, CLUSTER};
use folioswap_devices::PAGE_SIZE;
use folioswap_peer::{SwapLock, Zram};
use folioswap_slots::{
    CLUSTER_SLOTS, ConfigError, DeviceMask, DeviceSpec, FolioId, LogicalCpu, NonfullUnlessDiscard, Order,
    Shadow, Slots, SwapEntry, SwaponError,
};
use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// Rounds of each measurement.
const ROUNDS: usize = 5;
/// Clusters of the allocator that is measured: 16 MiB of slot words, more than a private cache.
const CLUSTERS: u32 = 4096;
/// Pages that the kernel swaps out and in again.
const PAGES: usize = 8192;

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// The allocator refuses the sizes.
    #[error("the allocator cannot be made: {0}")]
    Config(#[from] ConfigError),
    /// The device cannot be switched on.
    #[error("a device cannot be switched on: {0}")]
    Swapon(#[from] SwaponError),
    /// Memory for the pages cannot be had.
    #[error("memory for the pages: {0}")]
    Memory(#[source] io::Error),
}

/// The policy whose code is measured: the kernel's order of lists.
type Measured = NonfullUnlessDiscard;

const CPU: LogicalCpu = LogicalCpu(0);
const FOLIO: FolioId = FolioId(1);

/// Measures all costs. Cost: some seconds, and 64 MiB of memory.
///
/// # Errors
/// [`CalibrateError`].
pub fn calibrate() -> Result<CostsFile, CalibrateError> {
    let lock_ns = median(lock_pair);
    let transfer_ns = transfer();
    let allocator: Allocator<Measured> = Allocator::new(1, CLUSTERS)?;
    allocator.slots().swapon(DeviceSpec::new(u64::from(CLUSTERS) * CLUSTER))?;
    let slots = allocator.slots();
    // The first round touches all memory.
    let rounds: Vec<AllocatorTimes> = (0..=ROUNDS).map(|_| allocator_times(slots)).skip(1).collect();
    let of = |time: fn(&AllocatorTimes) -> f64| middle(rounds.iter().map(time).collect());
    let take_slot_ns = ((of(|t| t.alloc_4) - of(|t| t.alloc_0)) / 15.0).max(0.1);
    let alloc_ns = (of(|t| t.alloc_0) - lock_ns - take_slot_ns).max(1.0);
    let free_slot_ns = ((of(|t| t.free_16) - of(|t| t.free_1)) / 15.0).max(0.1);
    let free_ns = (of(|t| t.free_1) - lock_ns - free_slot_ns).max(1.0);
    let list_ns = (of(|t| t.free_listing) - of(|t| t.free_1) - lock_ns).max(1.0);
    let slots_of_9 = f64::from(CLUSTER_SLOTS);
    let lists = lock_ns + list_ns;
    let alloc_9 = alloc_ns + lock_ns + slots_of_9 * take_slot_ns + 2.0 * lists;
    let free_9 = free_ns + lock_ns + slots_of_9 * free_slot_ns + lists;
    let table_ns = (of(|t| t.alloc_9) - alloc_9).max(0.0) + (of(|t| t.free_9) - free_9).max(0.0);
    let look_ns = ((of(|t| t.scan) - 2.0 * lists - lock_ns) / 32.0).max(0.1);
    let (pages_by, (page_out_ns, page_in_ns)) = match kernel_pages() {
        Ok(times) => (PagesBy::KernelZram, times),
        Err(_) => (PagesBy::UserSpace, user_space_pages().map_err(CalibrateError::Memory)?),
    };
    let costs = Costs {
        lock_ns,
        transfer_ns,
        list_ns,
        look_ns,
        take_slot_ns,
        free_slot_ns,
        table_ns,
        alloc_ns,
        free_ns,
        page_out_ns,
        page_in_ns,
    };
    let tenths = |ns: f64| (ns * 100.0).round() / 100.0;
    Ok(CostsFile { machine: machine(), pages_by, costs: costs.map(tenths) })
}

impl Costs {
    fn map(self, change: impl Fn(f64) -> f64) -> Costs {
        Costs {
            lock_ns: change(self.lock_ns),
            transfer_ns: change(self.transfer_ns),
            list_ns: change(self.list_ns),
            look_ns: change(self.look_ns),
            take_slot_ns: change(self.take_slot_ns),
            free_slot_ns: change(self.free_slot_ns),
            table_ns: change(self.table_ns),
            alloc_ns: change(self.alloc_ns),
            free_ns: change(self.free_ns),
            page_out_ns: change(self.page_out_ns),
            page_in_ns: change(self.page_in_ns),
        }
    }
}

fn machine() -> String {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    format!("{}, Linux {release}", folioswap_report::machine())
}

fn middle(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn median(measure: impl Fn() -> f64) -> f64 {
    middle((0..ROUNDS).map(|_| measure()).collect())
}

/// Processor time of this thread, ns.
fn processor_ns() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

/// Nanoseconds of processor time for each of `count` repetitions of `work`.
fn each(count: u32, mut work: impl FnMut(u32)) -> f64 {
    let begin = processor_ns();
    (0..count).for_each(&mut work);
    (processor_ns() - begin) / f64::from(count)
}

/// The same two operations as the allocator's lock, on a line that nobody else has.
fn lock_pair() -> f64 {
    let lock = AtomicU32::new(0);
    each(1_000_000, |_| {
        let taken = lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed);
        black_box(&taken).ok();
        lock.store(0, Ordering::Release);
    })
}

/// Half of a round trip of one line between two threads; 0 with one processor. The best of many
/// bursts, because a burst in which either thread lost its processor says nothing.
fn transfer() -> f64 {
    const BURSTS: u32 = 60;
    const TRIPS: u32 = 250;
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return 0.0;
    }
    let line = AtomicU32::new(0);
    let turn = |mine: u32, next: u32| {
        let mut spins = 0u32;
        while line.compare_exchange_weak(mine, next, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            spins += 1;
            // The other thread may have lost its processor.
            if spins.is_multiple_of(1 << 14) {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| (0..BURSTS * TRIPS).for_each(|_| turn(1, 0)));
        let bursts = (0..BURSTS).map(|_| {
            let begin = Instant::now();
            (0..TRIPS).for_each(|_| turn(0, 1));
            begin.elapsed().as_nanos() as f64 / f64::from(2 * TRIPS)
        });
        bursts.fold(f64::INFINITY, f64::min)
    })
}

/// Nanoseconds per call.
struct AllocatorTimes {
    alloc_0: f64,
    alloc_4: f64,
    alloc_9: f64,
    free_1: f64,
    free_16: f64,
    free_9: f64,
    /// A free that moves a full cluster to another list.
    free_listing: f64,
    /// A cluster that is isolated, looked at in 32 places, and put away again.
    scan: f64,
}

/// Every measurement ends with an empty device.
fn allocator_times(slots: &Slots<0, Measured>) -> AllocatorTimes {
    let order = |order| Order::new(order).expect("0 to 9");
    let (zero, four, nine) = (Order::ZERO, order(4), Order::MAX);
    // `timed` of every `of` allocations are timed: not the first in a cluster, which opens it, and
    // not the last, which closes it.
    let alloc = |order: Order, count: u32, of: u32, timed: u32| {
        let one = || {
            let entry = slots.alloc_folio(CPU, order, FOLIO, DeviceMask::ALL);
            entry.expect("the device is large enough")
        };
        let mut first = slots.alloc_folio(CPU, order, FOLIO, DeviceMask::ALL).ok();
        // Memory that is there already, so that no page fault is timed.
        let mut entries = vec![first.expect("the device is large enough"); count as usize];
        let mut ns = Vec::new();
        for chunk in entries.chunks_mut(of as usize) {
            let (untimed, rest) =
                chunk.split_at_mut((of - timed).div_ceil(2).min(chunk.len() as u32) as usize);
            untimed.iter_mut().for_each(|entry| *entry = first.take().unwrap_or_else(one));
            let (inner, last) = rest.split_at_mut(rest.len().min(timed as usize));
            if !inner.is_empty() {
                ns.push(each(inner.len() as u32, |index| inner[index as usize] = one()));
            }
            last.iter_mut().for_each(|entry| *entry = one());
        }
        for entry in &entries {
            let left = slots.cache_remove(*entry, order.slots(), FOLIO, Shadow::EMPTY, |_, _| {});
            debug_assert!(left.is_ok());
        }
        (middle(ns), entries)
    };
    let put = |entry: SwapEntry, count: u32| {
        let put = slots.put(entry, count, |_, _| {});
        debug_assert!(put.is_ok_and(|put| put.rejected == 0));
    };
    let (alloc_0, singles) = alloc(zero, 256 * CLUSTER_SLOTS, CLUSTER_SLOTS, CLUSTER_SLOTS - 3);
    let clusters = || singles.chunks(CLUSTER_SLOTS as usize).filter(|chunk| chunk.len() > 8);
    // Slot 0 is the header's, so the chunks lie across clusters; their inner slots do not move
    // clusters after the first free.
    let firsts: Vec<SwapEntry> = clusters().map(|chunk| chunk[1]).collect();
    let free_listing = each(firsts.len() as u32, |index| put(firsts[index as usize], 1));
    let rest: Vec<SwapEntry> = clusters().flat_map(|chunk| chunk[2..].iter().copied()).collect();
    let most = rest.len() - rest.len() / 8;
    let free_1 = each(most as u32, |index| put(rest[index as usize], 1));
    rest[most..].iter().for_each(|entry| put(*entry, 1));
    clusters().for_each(|chunk| put(chunk[0], 1));
    let (alloc_4, sixteens) = alloc(four, 256 * 32, 32, 29);
    let free_16 = each(sixteens.len() as u32, |index| put(sixteens[index as usize], 16));
    let (alloc_9, wholes) = alloc(nine, 1024, 64, 63);
    let free_9 = each(wholes.len() as u32, |index| put(wholes[index as usize], CLUSTER_SLOTS));
    // Every cluster of the device is given to 64 kB folios, of each of which one page stays.
    let (_, sixteens) = alloc(four, (CLUSTERS - 1) * 32, 32, 29);
    sixteens.iter().for_each(|entry| put(entry.checked_add(1).expect("inside the cluster"), 15));
    let before = slots.stats().clusters_scanned[four.index()];
    let scans = each(1, |_| {
        // The walk finds nothing in any of the clusters that 64 kB folios use.
        let mut left = Vec::new();
        while let Ok(entry) = slots.alloc_folio(CPU, four, FOLIO, DeviceMask::ALL) {
            left.push(entry);
        }
        for entry in left {
            let gone = slots.cache_remove(entry, four.slots(), FOLIO, Shadow::EMPTY, |_, _| {});
            debug_assert!(gone.is_ok());
            put(entry, four.slots());
        }
    });
    let scanned = (slots.stats().clusters_scanned[four.index()] - before).max(1);
    sixteens.iter().for_each(|entry| put(*entry, 1));
    let scan = scans / scanned as f64;
    AllocatorTimes { alloc_0, alloc_4, alloc_9, free_1, free_16, free_9, free_listing, scan }
}

/// Private memory of the process, unmapped on drop.
struct Mapping {
    start: *mut u8,
}

impl Mapping {
    fn new() -> io::Result<Mapping> {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), PAGES * PAGE_SIZE, prot, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapping = Mapping { start: start.cast() };
        mapping.advise(libc::MADV_NOHUGEPAGE)?;
        Ok(mapping)
    }

    fn advise(&self, advice: i32) -> io::Result<()> {
        // SAFETY: the whole range is ours; none of the advices used here loses its contents.
        let done = unsafe { libc::madvise(self.start.cast(), PAGES * PAGE_SIZE, advice) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Writes pages that compress to about a third, as program data does.
    fn fill(&self) {
        for page in 0..PAGES {
            for word in 0..PAGE_SIZE / 8 {
                // Every third word is unlike the others.
                let mixed = (page * 512 + word) as u64;
                let value =
                    if word % 3 == 0 { mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) } else { page as u64 };
                // SAFETY: inside the mapping.
                unsafe { self.start.add(page * PAGE_SIZE + word * 8).cast::<u64>().write(value) };
            }
        }
    }

    /// Reads a byte of each page.
    fn touch(&self) {
        for page in 0..PAGES {
            // SAFETY: inside the mapping.
            black_box(unsafe { self.start.add(page * PAGE_SIZE).read_volatile() });
        }
    }

    fn page(&self, page: usize) -> &folioswap_devices::page::Page {
        // SAFETY: inside the mapping, which nobody writes while the reference lives.
        unsafe { &*self.start.add(page * PAGE_SIZE).cast() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nobody uses it any more.
        unsafe { libc::munmap(self.start.cast(), PAGES * PAGE_SIZE) };
    }
}

/// System time of this process, ns.
fn system_ns() -> f64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call fills the structure.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    usage.ru_stime.tv_sec as f64 * 1e9 + usage.ru_stime.tv_usec as f64 * 1e3
}

/// System time per page that the kernel swaps out to zram, and in again, as single pages.
fn kernel_pages() -> io::Result<(f64, f64)> {
    let lock = SwapLock::take(|| true)?;
    lock.remove_stale();
    let lock = Arc::new(lock);
    let bytes = (2 * PAGES * PAGE_SIZE) as u64;
    let _zram = Zram::new(&lock, bytes, Some(folioswap_peer::HIGHEST_PRIORITY), None)?;
    let mapping = Mapping::new()?;
    let mut times: Vec<(f64, f64)> = Vec::new();
    for _ in 0..ROUNDS {
        mapping.fill();
        let begin = system_ns();
        mapping.advise(libc::MADV_PAGEOUT)?;
        let out = system_ns();
        mapping.touch();
        times.push(((out - begin) / PAGES as f64, (system_ns() - out) / PAGES as f64));
    }
    let out = middle(times.iter().map(|(out, _)| *out).collect());
    let back = middle(times.iter().map(|(_, back)| *back).collect());
    // A kernel that does not swap out here says nothing.
    if out > 0.0 && back > 0.0 { Ok((out, back)) } else { Err(io::Error::other("nothing was swapped out")) }
}

/// Codec and first-touch fault per page, in this process.
fn user_space_pages() -> io::Result<(f64, f64)> {
    use folioswap_devices::lz4;
    let mapping = Mapping::new()?;
    let begin = system_ns();
    mapping.fill();
    let fault = (system_ns() - begin) / PAGES as f64;
    let mut table = lz4::Table::new();
    let mut output = Box::new([0; lz4::OUTPUT_MAX]);
    let mut compressed = 0;
    let out = each(PAGES as u32, |page| {
        let length = lz4::compress(mapping.page(page as usize), &mut output, &mut table, PAGE_SIZE);
        compressed = length.unwrap_or(0);
    });
    let mut page = Box::new([0; PAGE_SIZE]);
    let back = each(PAGES as u32, |_| {
        black_box(lz4::decompress(&output[..compressed], &mut page)).ok();
    });
    Ok((out, back + fault))
}
