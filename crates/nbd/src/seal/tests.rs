use super::*;
use std::collections::HashSet;

use folioswap_group::units::PAGE_SIZE;

#[test]
fn only_the_last_page_at_its_place_opens() {
    let sealer = Sealer::new([1; 16]).expect("a key");
    let plain = [7_u8; PAGE_SIZE];
    let mut old = plain;
    let old_seal = sealer.seal(5, &mut old);
    let mut new = plain;
    let new_seal = sealer.seal(5, &mut new);
    assert_ne!(old, new, "the same page twice does not look the same");
    let opens = |slot, seal: &Seal, page: &[u8; PAGE_SIZE]| {
        let mut page = *page;
        sealer.open(slot, seal, &mut page).map(|()| assert_eq!(page, plain))
    };
    assert_eq!(opens(5, &new_seal, &new), Ok(()));
    assert_eq!(opens(5, &old_seal, &old), Ok(()));
    assert_eq!(opens(5, &new_seal, &old), Err(NotAuthentic), "an older one");
    assert_eq!(opens(6, &new_seal, &new), Err(NotAuthentic), "one from elsewhere");
    assert_eq!(opens(5, &new_seal, &[0; PAGE_SIZE]), Err(NotAuthentic), "none");
    let mut changed = new;
    changed[4095] ^= 1;
    assert_eq!(opens(5, &new_seal, &changed), Err(NotAuthentic));
    let mut page = new;
    let other = Sealer::new([1; 16]).expect("a key");
    assert!(other.open(5, &new_seal, &mut page).is_err(), "another run's");
}

#[test]
fn no_nonce_comes_twice_whoever_writes() {
    let sealer = Sealer::new([2; 16]).expect("a key");
    let generations = |_| {
        let mut page = [0; 64];
        (0..2000).map(|slot| sealer.seal(slot, &mut page).generation).collect::<Vec<_>>()
    };
    let all: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|index| scope.spawn(move || generations(index))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
    assert!(!all.contains(&0), "0 means that nothing was written");
}
