//! Many threads increment counters all over a range that does not fit, while its pages leave and
//! return. No increment may be lost, neither an atomic one nor a plain one of a word that only one
//! thread writes.
//!
//! `acc-counters --size 256M --threads 8 --seconds 60 [--run PAGES]`: with `--run`, increments go
//! to that many neighbouring pages in turn, so that larger folios come back.

use folioswap_acceptance::data::{PAGE, Random};
use folioswap_acceptance::memory::{Mapping, parse_size};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const WORDS: usize = PAGE / 8;

fn main() -> ExitCode {
    let (mut size, mut threads, mut seconds, mut run) = (64u64 << 20, 8usize, 5u64, 1u64);
    let mut arguments = std::env::args().skip(1);
    while let (Some(name), Some(value)) = (arguments.next(), arguments.next()) {
        match name.as_str() {
            "--size" => size = parse_size(&value).expect("a size"),
            "--threads" => threads = value.parse().expect("a number"),
            "--seconds" => seconds = value.parse().expect("a number"),
            "--run" => run = value.parse().expect("a number"),
            _ => panic!("unknown option {name}"),
        }
    }
    assert!(threads < WORDS / 2, "one word of each page per thread");
    let pages = size as usize / PAGE;
    let memory = Mapping::new(pages * PAGE);
    // SAFETY: aligned, in bounds, zero is a valid counter, and all accesses from here on are atomic
    // operations.
    let words = unsafe { std::slice::from_raw_parts(memory.as_ptr().cast::<AtomicU64>(), pages * WORDS) };
    // Each page begins with noise: without it every page would compress to nothing and look alike.
    for (page, words) in words.chunks_exact(WORDS).enumerate() {
        let mut random = Random::new(page as u64);
        for word in &words[WORDS / 2..WORDS / 2 + 192] {
            word.store(random.next(), Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    let counts: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let stop = &stop;
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    let mut random = Random::new(thread as u64 + 77);
                    let (mut shared, mut own) = (0u64, 0u64);
                    while !stop.load(Relaxed) {
                        let first = random.below(pages as u64);
                        for page in first..(first + run).min(pages as u64) {
                            let words = &words[page as usize * WORDS..][..WORDS];
                            words[0].fetch_add(1, Relaxed);
                            shared += 1;
                            // A plain read-modify-write: a page that is taken out between the load
                            // and the store loses it.
                            let word = &words[8 + thread];
                            word.store(word.load(Relaxed) + 1, Relaxed);
                            own += 1;
                        }
                    }
                    (shared, own)
                })
            })
            .collect();
        std::thread::sleep(Duration::from_secs(seconds));
        stop.store(true, Relaxed);
        workers.into_iter().map(|worker| worker.join().expect("no panic")).collect()
    });
    let mut failed = false;
    let (mut shared, mut own) = (0u64, vec![0u64; threads]);
    for (page, words) in words.chunks_exact(WORDS).enumerate() {
        shared += words[0].load(Relaxed);
        let mut of_page = 0;
        for (thread, sum) in own.iter_mut().enumerate() {
            let value = words[8 + thread].load(Relaxed);
            *sum += value;
            of_page += value;
        }
        if of_page != words[0].load(Relaxed) {
            eprintln!("page {page}: {} shared and {of_page} own increments", words[0].load(Relaxed));
            failed = true;
        }
        let mut random = Random::new(page as u64);
        if words[WORDS / 2..WORDS / 2 + 192].iter().any(|word| word.load(Relaxed) != random.next()) {
            eprintln!("page {page}: its pattern is damaged");
            failed = true;
        }
    }
    let wanted: u64 = counts.iter().map(|(shared, _)| shared).sum();
    if shared != wanted {
        eprintln!("{wanted} atomic increments made, {shared} found");
        failed = true;
    }
    for (thread, (_, made)) in counts.iter().enumerate() {
        if own[thread] != *made {
            eprintln!("thread {thread}: {made} increments made, {} found", own[thread]);
            failed = true;
        }
    }
    eprintln!("{wanted} increments");
    if failed || wanted == 0 {
        return ExitCode::FAILURE;
    }
    println!("ok: no update lost");
    ExitCode::SUCCESS
}
