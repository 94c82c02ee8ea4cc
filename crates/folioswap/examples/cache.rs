//! A cache of 128 MiB of values within a limit of 32 MiB. Popular values stay resident, the rest is
//! compressed or in a file, and none is discarded.
//!
//! `cargo run --release -p folioswap --example cache`

use allocator_api2::vec::Vec as VecIn;
use folioswap::{Error, RegionAllocator, Swap};
use hashbrown::HashMap;
use std::time::Instant;

const VALUES: u64 = 32_768;
const VALUE_BYTES: usize = 4000;

type Value = VecIn<u8, RegionAllocator>;

/// Computes a value. A real one would be expensive to compute.
fn compute(key: u64, allocator: &RegionAllocator) -> Value {
    let mut value = VecIn::with_capacity_in(VALUE_BYTES, allocator.clone());
    let mut word = key | 1;
    while value.len() < VALUE_BYTES {
        word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        value.extend_from_slice(&word.to_ne_bytes());
        value.extend_from_slice(&key.to_ne_bytes());
    }
    value
}

fn main() -> Result<(), Error> {
    let swap = Swap::builder().limit("32M").build()?;
    let allocator = RegionAllocator::new(&swap, "256M")?;
    let mut cache: HashMap<u64, Value, _, _> = HashMap::new_in(allocator.clone());
    let begun = Instant::now();
    for key in 0..VALUES {
        cache.insert(key, compute(key, &allocator));
    }
    println!("{VALUES} values of {VALUE_BYTES} bytes in {:?}", begun.elapsed());
    // Most questions are about a few keys.
    let (begun, mut word) = (Instant::now(), 1_u64);
    const QUESTIONS: u32 = 100_000;
    for question in 0..QUESTIONS {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let key = (word >> 33) % if question % 20 == 0 { VALUES } else { VALUES / 50 };
        let value = &cache[&key];
        assert_eq!(value[8..16], key.to_ne_bytes());
    }
    println!("{QUESTIONS} questions, {:?} each", begun.elapsed() / QUESTIONS);
    println!("{}", swap.statistics());
    Ok(())
}
