//! The time that the touch of a swapped-out page takes: by handler threads and by SIGBUS, from
//! compressed RAM and from plain RAM, beside the kernel's own zram, interleaved, in one process and
//! one thread; and from a file, beside pread(2) with O_DIRECT of another file.
//!
//! `cargo bench -p folioswap --bench faults [-- ROUNDS]` (default: 3). The kernel's row needs root
//! and zram. The data: LZ4 halves it. One page of each 64 KiB is touched, in a random order.

use folioswap::{Device, FaultMode, Swap};
use folioswap_peer::{FolioSizes, HugePages, SwapLock, Zram};
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Instant;

const PAGE: usize = folioswap_devices::PAGE_SIZE;
const BYTES: usize = 256 << 20;
/// One page of each such piece is touched, so that reading its neighbours ahead gains nothing.
const PIECE: usize = 64 << 10;
const TOUCHES: usize = BYTES / PIECE;
/// A shorter touch is no fault: touching a resident page takes a tenth of this.
const FAULT_NS: u64 = 700;

/// Fills memory so that half of each page does not compress.
fn fill(memory: &mut [u8]) {
    let mut word = 1_u64;
    for chunk in memory.chunks_exact_mut(16) {
        word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) | 1;
        chunk[..8].copy_from_slice(&word.to_ne_bytes());
    }
}

/// Touches a page of each piece in a random order. Returns the durations of the faults, ascending.
fn touch_all(base: *const u8) -> Vec<u64> {
    // SAFETY: `offset` is within the memory, which is alive.
    touch_each(|offset| unsafe {
        base.add(offset).read_volatile();
    })
}

/// Calls `touch` with the offset of a page of each piece, in a random order.
fn touch_each(mut touch: impl FnMut(usize)) -> Vec<u64> {
    let mut order: Vec<usize> = (0..TOUCHES).collect();
    let mut word = 7_u64;
    for place in (1..TOUCHES).rev() {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(place, (word >> 33) as usize % (place + 1));
    }
    let mut times = Vec::with_capacity(TOUCHES);
    for piece in order {
        // The page within the piece is random, because the engine would detect a stride.
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let page = (word >> 40) as usize % (PIECE / PAGE);
        let begun = Instant::now();
        touch(piece * PIECE + page * PAGE);
        times.push(begun.elapsed().as_nanos() as u64);
    }
    times.retain(|&time| time >= FAULT_NS);
    times.sort_unstable();
    times
}

/// A row of the table, in the order of measurement.
type Row = (&'static str, Vec<Vec<u64>>);

fn ours(device: impl Fn() -> Device, mode: FaultMode) -> Vec<u64> {
    let swap = Swap::builder().limit("1G").device(device()).sigbus().build().expect("a swap");
    let mut region = swap.region_with(BYTES, mode).expect("a region");
    fill(region.as_mut_slice());
    region.page_out(..).expect("advice");
    assert_eq!(region.resident_bytes(..).ok(), Some(0));
    // Writes that the file system has pending are not measured, nor are those of the other file.
    // SAFETY: the call has no arguments.
    unsafe { libc::sync() };
    let times = touch_all(region.as_ptr());
    let read = swap.statistics().counter("pswpin").unwrap_or(0) as usize;
    let ahead = swap.statistics().counter("swap_ra").unwrap_or(0) as usize;
    assert!((TOUCHES..TOUCHES * 2).contains(&(read - ahead)), "{read} pages came, {ahead} of them ahead");
    times
}

/// The kernel's way to a file: reads of 4 KiB past the page cache, at the offsets that `touch_all`
/// would touch.
fn raw_reads() -> std::io::Result<Vec<u64>> {
    use std::os::unix::fs::{FileExt, OpenOptionsExt};
    let path = format!("/var/tmp/folioswap-faults-{}", std::process::id());
    let mut options = std::fs::OpenOptions::new();
    let options = options.read(true).write(true).create_new(true);
    let file = options.custom_flags(libc::O_DIRECT).open(&path)?;
    std::fs::remove_file(&path)?;
    let mut memory = vec![0_u8; BYTES + PAGE];
    let at = memory.as_ptr().align_offset(PAGE);
    fill(&mut memory[at..at + BYTES]);
    for (number, part) in memory[at..at + BYTES].chunks(1 << 20).enumerate() {
        file.write_all_at(part, (number << 20) as u64)?;
    }
    file.sync_all()?;
    let page = &mut memory[at..at + PAGE];
    Ok(touch_each(|offset| assert_eq!(file.read_at(page, offset as u64).expect("a read"), PAGE)))
}

/// The kernel's zram, without large folios, so that each fault brings one page.
fn kernel(turn: &Arc<SwapLock>) -> std::io::Result<Vec<u64>> {
    let _settings = HugePages::set(turn, FolioSizes::Only4K)?;
    let _swap = Zram::new(turn, 4 * BYTES as u64, Some(folioswap_peer::HIGHEST_PRIORITY), Some("lz4"))?;
    // SAFETY: the mapping is ours, and is unmapped at the end.
    unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let memory = libc::mmap(null_mut(), BYTES, access, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
        assert_ne!(memory, libc::MAP_FAILED);
        fill(std::slice::from_raw_parts_mut(memory.cast(), BYTES));
        assert_eq!(libc::madvise(memory, BYTES, libc::MADV_PAGEOUT), 0);
        let times = touch_all(memory.cast());
        libc::munmap(memory, BYTES);
        Ok(times)
    }
}

fn main() {
    let rounds = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(3);
    let turn = SwapLock::take(|| false).map(Arc::new);
    if let Ok(turn) = &turn {
        turn.remove_stale();
    }
    let mut rows: Vec<Row> = vec![
        ("SIGBUS, zram (LZ4)", Vec::new()),
        ("SIGBUS, ram", Vec::new()),
        ("handler threads, zram (LZ4)", Vec::new()),
        ("handler threads, ram", Vec::new()),
        ("kernel, zram (lz4)", Vec::new()),
        ("SIGBUS, file", Vec::new()),
        ("handler threads, file", Vec::new()),
        ("pread(2), O_DIRECT, file", Vec::new()),
    ];
    for _ in 0..rounds {
        let (zram, ram) = (Device::zram, || Device::ram("320M"));
        rows[0].1.push(ours(zram, FaultMode::Sigbus));
        rows[1].1.push(ours(ram, FaultMode::Sigbus));
        rows[2].1.push(ours(zram, FaultMode::HandlerThreads));
        rows[3].1.push(ours(ram, FaultMode::HandlerThreads));
        match turn
            .as_ref()
            .map_err(ToString::to_string)
            .and_then(|turn| kernel(turn).map_err(|why| why.to_string()))
        {
            Ok(times) => rows[4].1.push(times),
            Err(why) => println!("no row of the kernel: {why}"),
        }
        let file = || Device::file("/var/tmp").size("320M");
        rows[5].1.push(ours(file, FaultMode::Sigbus));
        rows[6].1.push(ours(file, FaultMode::HandlerThreads));
        rows[7].1.push(raw_reads().expect("a file in /var/tmp"));
    }
    println!(
        "| touch of a page that is out ({rounds} rounds of {TOUCHES}, medians) | p50 µs | p90 µs | p99 µs | p99.9 µs |"
    );
    println!("|---|---|---|---|---|");
    for (name, rounds) in rows.iter().filter(|(_, rounds)| !rounds.is_empty()) {
        let median = |of: &dyn Fn(&[u64]) -> f64| {
            let mut each: Vec<f64> = rounds.iter().map(|times| of(times)).collect();
            each.sort_unstable_by(f64::total_cmp);
            each[each.len() / 2]
        };
        let part =
            |part: f64| median(&|times| times[((times.len() - 1) as f64 * part) as usize] as f64 / 1000.0);
        println!("| {name} | {:.1} | {:.1} | {:.1} | {:.1} |", part(0.5), part(0.9), part(0.99), part(0.999));
    }
}
