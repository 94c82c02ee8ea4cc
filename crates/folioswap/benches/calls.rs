//! What system calls cost with the gate inside the program, beside the same program without it, and
//! what putting it there costs.
//!
//! `cargo bench -p folioswap --bench calls [-- ROUNDS]` (default: 9): processes in turn.

use folioswap::{Device, Swap};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::Instant;

const PART: &str = "FOLIOSWAP_BENCH_PART";
const CALLS: usize = 50_000;

/// Nanoseconds of one call.
fn each(mut call: impl FnMut()) -> f64 {
    (0..CALLS / 10).for_each(|_| call());
    let begun = Instant::now();
    (0..CALLS).for_each(|_| call());
    begun.elapsed().as_nanos() as f64 / CALLS as f64
}

/// Prints its figures, in the order of `NAMES`.
fn part() {
    let begun = Instant::now();
    let swap = Swap::builder().limit("64M").device(Device::zram()).build().expect("a swap");
    let first = begun.elapsed().as_nanos() as f64 / 1000.0;
    let mut region = swap.region("1M").expect("a region");
    region.as_mut_slice().fill(1);
    let mut plain = vec![1_u8; 1 << 20];
    let zeroes = std::fs::File::open("/dev/zero").expect("a device");
    let fd = zeroes.as_raw_fd();
    let plain = plain.as_mut_ptr();
    let managed = region.as_mut_ptr();
    // SAFETY: each call writes within one of the two buffers, or takes no memory.
    let figures = unsafe {
        [
            first,
            each(|| assert!(libc::getppid() > 0)),
            each(|| assert!(libc::read(fd, plain.cast(), 512) == 512)),
            each(|| assert!(libc::read(fd, managed.cast(), 512) == 512)),
            each(|| assert!(libc::read(fd, plain.cast(), 65536) == 65536)),
            each(|| assert!(libc::read(fd, managed.cast(), 65536) == 65536)),
        ]
    };
    println!("{}", figures.map(|figure| figure.to_string()).join(" "));
}

const NAMES: [&str; 6] = [
    "the first swap, us",
    "getppid, ns",
    "read 512 bytes of /dev/zero, ns",
    "the same into a region, ns",
    "read 64 KiB of /dev/zero, ns",
    "the same into a region, ns",
];

fn main() {
    if std::env::var_os(PART).is_some() {
        return part();
    }
    let rounds = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(9);
    let gates = ["never", "always"];
    let mut figures = [[const { Vec::<f64>::new() }; NAMES.len()], [const { Vec::new() }; NAMES.len()]];
    for _ in 0..rounds {
        for (gate, figures) in gates.iter().zip(&mut figures) {
            let mut command = Command::new(std::env::current_exe().expect("a path"));
            let output = command.env(PART, "1").env("FOLIOSWAP_GATE", gate).output().expect("a process");
            let said = String::from_utf8(output.stdout).expect("text");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            figures.iter_mut().zip(said.split_whitespace()).for_each(|(to, word)| {
                to.push(word.parse().expect("a number"));
            });
        }
    }
    println!("| {rounds} rounds, median (lowest, highest) | without the gate | with it |\n|---|---|---|");
    for (row, name) in NAMES.iter().enumerate() {
        let cells = figures.each_mut().map(|figures| {
            let times = &mut figures[row];
            times.sort_unstable_by(f64::total_cmp);
            format!("{:.0} ({:.0}, {:.0})", times[times.len() / 2], times[0], times[times.len() - 1])
        });
        println!("| {name} | {} |", cells.join(" | "));
    }
}
