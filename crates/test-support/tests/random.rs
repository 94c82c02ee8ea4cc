//! Seeded numbers and bytes.

use folioswap_test_support::random::{Random, noise};

#[test]
fn a_seed_repeats_and_numbers_stay_below_their_bound() {
    let (mut one, mut two) = (Random::new(7), Random::new(7));
    for bound in 1..1000 {
        let number = one.below(bound);
        assert!(number < bound);
        assert_eq!(two.below(bound), number);
    }
}

#[test]
fn noise_has_all_bytes_about_equally_often_and_differs_by_seed() {
    for seed in 0..8 {
        let bytes = noise(seed, 64 << 10);
        let mut counts = [0; 256];
        bytes.iter().for_each(|&byte| counts[byte as usize] += 1);
        assert!(counts.iter().all(|count| (150..370).contains(count)), "seed {seed}: {counts:?}");
        assert_ne!(bytes, noise(seed + 1, 64 << 10));
    }
}
