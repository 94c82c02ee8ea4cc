//! How much of a mapping is resident, and how much of that in huge pages.

use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::ops::Range;

/// Resident memory of a range of our own addresses, as the kernel reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resident {
    /// Bytes that are resident (`Rss`).
    pub bytes: u64,
    /// Bytes of these that huge pages of 2 MiB map whole (`AnonHugePages`).
    pub huge_bytes: u64,
}

impl Resident {
    /// Sums up the mappings that `range` touches. Only the program's data counts, where
    /// `smaps_rollup` would add its code and libraries. Cost: the kernel walks the page tables of
    /// the whole process.
    ///
    /// # Errors
    /// `/proc/self/smaps` cannot be read.
    pub fn of(range: Range<usize>) -> io::Result<Resident> {
        Ok(parse(&fs::read_to_string("/proc/self/smaps")?, &range))
    }

    /// The part (0 to 1) that is in huge pages; `None` when nothing is resident.
    pub fn huge(self) -> Option<f64> {
        (self.bytes > 0).then(|| self.huge_bytes as f64 / self.bytes as f64)
    }
}

fn parse(smaps: &str, range: &Range<usize>) -> Resident {
    let (mut found, mut inside) = (Resident::default(), false);
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        let (first, second) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let bytes = || second.parse::<u64>().unwrap_or(0) << 10;
        match first {
            "Rss:" if inside => found.bytes += bytes(),
            "AnonHugePages:" if inside => found.huge_bytes += bytes(),
            _ => {
                if let Some(mapping) = addresses(first) {
                    inside = mapping.start < range.end && range.start < mapping.end;
                }
            }
        }
    }
    found
}

/// The addresses in a mapping's first line, `7f0000000000-7f0000200000 rw-p ...`.
fn addresses(word: &str) -> Option<Range<usize>> {
    let (start, end) = word.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some(number(start)?..number(end)?)
}

#[cfg(test)]
mod tests;
