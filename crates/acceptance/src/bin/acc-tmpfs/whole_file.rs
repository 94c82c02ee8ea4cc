//! One file, written or verified from start to end.

use crate::mapping::Mapping;
use crate::process::{Done, compare, failed};
use crate::random::Random;
use folioswap_acceptance::data::PAGE;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

/// Makes mebibyte `number` of a file. Half of each page is random.
fn block(seed: u64, number: u64) -> Vec<u8> {
    let mut random = Random((seed << 32 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut bytes = vec![0; 1 << 20];
    for page in bytes.chunks_mut(PAGE) {
        for word in page[..PAGE / 2].chunks_mut(8) {
            word.copy_from_slice(&random.next().to_ne_bytes());
        }
        page[PAGE / 2..].fill(number as u8);
    }
    bytes
}

/// Carries out `fill`, `check` or `map`: see the usage.
pub fn whole_file(action: &str, path: &str, blocks: u64, seed: u64) -> Done {
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .write(true)
        .create(action == "fill")
        .truncate(false)
        .open(path)
        .map_err(failed("open"))?;
    let mapping = match action {
        "map" => {
            Some(Mapping::new(&file, (blocks << 20) as usize, libc::MAP_SHARED).map_err(failed("mmap"))?)
        }
        _ => None,
    };
    for number in 0..blocks {
        let expected = block(seed, number);
        let found = match (action, &mapping) {
            ("fill", _) => {
                file.write_all_at(&expected, number << 20).map_err(failed("write"))?;
                continue;
            }
            (_, Some(mapping)) => mapping.read((number << 20) as usize, 1 << 20),
            _ => {
                let mut found = vec![0; 1 << 20];
                file.read_exact_at(&mut found, number << 20).map_err(failed("read"))?;
                found
            }
        };
        compare(&format!("{action} of mebibyte {number}"), &found, &expected)?;
    }
    Ok(())
}
