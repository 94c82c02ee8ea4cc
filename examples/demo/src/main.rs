//! Builds a table of 512 MiB of records, sorts it, reads it in order and at random, changes some
//! records, and checks every byte. `scripts/demo.sh` runs it within 128 MiB.
//!
//! The program knows nothing of folioswap: it is an ordinary program with a large `Vec`.

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

/// A record of 64 bytes, as in a log: a key, a number computed from it, and text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
struct Record {
    key: u64,
    changes: u64,
    proof: u64,
    text: [u8; 40],
}

fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Record {
    fn new(key: u64, changes: u64) -> Self {
        // The text is one of a few hundred, as in most tables.
        let mut text = *b"a record about 000 of a table, kept cold";
        let mut number = key >> 56;
        for digit in text[15..18].iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
        Record { key, changes, proof: mix(key ^ changes << 56), text }
    }
    fn is_right(&self) -> bool {
        *self == Record::new(self.key, self.changes)
    }
}

/// Runs one step: prints its name, does its work, and prints how long it took.
fn step<T>(what: &str, bytes: usize, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    print!("{what:<44}");
    std::io::stdout().flush().map_err(|error| error.to_string())?;
    let start = Instant::now();
    let result = work();
    let seconds = start.elapsed().as_secs_f64();
    match &result {
        Ok(_) => println!("{seconds:6.2} s   {:6.0} MB/s", bytes as f64 / 1e6 / seconds),
        Err(_) => println!("WRONG"),
    }
    result
}

/// Returns a figure of /proc/self/status, in MiB.
fn status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn run(mebibytes: usize) -> Result<(), String> {
    let count = (mebibytes << 20) / size_of::<Record>();
    let bytes = count * size_of::<Record>();
    println!("A table of {count} records, {mebibytes} MiB:\n");

    let mut table = Vec::with_capacity(count);
    step("building it", bytes, || {
        table.extend((0..count as u64).map(|n| Record::new(mix(n), 0)));
        Ok(())
    })?;
    println!("    {} MiB are addressed, {} MiB of them resident", status("VmSize"), status("VmRSS"));
    let sum = table.iter().fold(0u64, |sum, record| sum.wrapping_add(record.key));

    step("sorting it by key, in place", bytes, || {
        table.sort_unstable_by_key(|record| record.key);
        Ok(())
    })?;
    step("reading it in order, checking every byte", bytes, || {
        let mut last = 0;
        for (index, record) in table.iter().enumerate() {
            if !record.is_right() || record.key < last {
                return Err(format!("record {index} is wrong: {record:?}"));
            }
            last = record.key;
        }
        Ok(())
    })?;
    let touches = count / 128;
    step("changing records here and there", touches * 4096, || {
        for n in 0..touches as u64 {
            let index = mix(n ^ 0xabcd) as usize % count;
            let record = &mut table[index];
            if !record.is_right() {
                return Err(format!("record {index} is wrong: {record:?}"));
            }
            *record = Record::new(record.key, record.changes + 1);
        }
        Ok(())
    })?;
    step("reading all of it again", bytes, || {
        let (mut keys, mut changes) = (0u64, 0u64);
        for (index, record) in table.iter().enumerate() {
            if !record.is_right() {
                return Err(format!("record {index} is wrong: {record:?}"));
            }
            keys = keys.wrapping_add(record.key);
            changes += record.changes;
        }
        if keys != sum || changes != touches as u64 {
            return Err(format!(
                "{changes} of {touches} changes found, sum of keys {keys:#x} instead of {sum:#x}"
            ));
        }
        Ok(())
    })?;
    println!("    {} MiB are addressed, {} MiB of them resident", status("VmSize"), status("VmRSS"));
    println!("\nAll {count} records are right: nothing was lost, nothing was mixed up.");
    Ok(())
}

fn main() -> ExitCode {
    let mebibytes = match std::env::args().nth(1).map_or(Ok(512), |word| word.parse()) {
        Ok(mebibytes @ 1..=1_000_000) => mebibytes,
        _ => {
            eprintln!("four-times [MEBIBYTES]");
            return ExitCode::from(2);
        }
    };
    match run(mebibytes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\n{error}");
            ExitCode::FAILURE
        }
    }
}
