//! Collections in managed memory against the same collections in ordinary memory.

use allocator_api2::alloc::{Allocator, Layout};
use allocator_api2::vec::Vec as VecIn;
use folioswap::{Device, RegionAllocator, Swap};
use std::collections::HashMap;

fn swap() -> Swap {
    Swap::builder().limit("8M").device(Device::file("/var/tmp").size("256M")).validate().build().unwrap()
}

#[test]
fn collections_of_several_threads_agree_with_an_oracle() {
    let swap = swap();
    let allocator = RegionAllocator::new(&swap, "64M").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let allocator = allocator.clone();
            scope.spawn(move || {
                let mut managed = hashbrown::HashMap::new_in(allocator.clone());
                let mut oracle: HashMap<u64, Vec<u8>> = HashMap::new();
                let mut word = thread + 1;
                for _ in 0..4000 {
                    word =
                        word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let (key, length) = (word >> 56, 1 << ((word >> 40) % 18));
                    if word >> 33 & 3 == 0 {
                        managed.remove(&key);
                        oracle.remove(&key);
                    } else {
                        let mut value = VecIn::new_in(allocator.clone());
                        // The vector grows step by step, as vectors do.
                        (0..4).for_each(|part| value.resize(length * (part + 1) / 4, key as u8 ^ part as u8));
                        oracle.insert(key, value.to_vec());
                        managed.insert(key, value);
                    }
                }
                assert_eq!(managed.len(), oracle.len());
                assert!(oracle.iter().all(|(key, value)| managed[key].as_slice() == value.as_slice()));
            });
        }
    });
    let figure = |name| swap.statistics().counter(name).unwrap();
    assert!(figure("pswpin") > 0 && figure("violations") == 0);
    // The free memory is one block again, so an allocation of all of it succeeds.
    let layout = Layout::from_size_align(48 << 20, 4096).unwrap();
    let all = allocator.allocate(layout).expect("the region is empty");
    // SAFETY: the block came from this allocator.
    unsafe { allocator.deallocate(all.cast(), layout) };
}

#[test]
fn what_does_not_fit_is_refused_and_what_is_freed_is_given_back() {
    let swap = swap();
    let allocator = RegionAllocator::new(&swap, "16M").unwrap();
    assert!(allocator.allocate(Layout::from_size_align(17 << 20, 1).unwrap()).is_err());
    assert!(allocator.allocate(Layout::new::<()>()).is_ok());
    let mut bytes = VecIn::new_in(allocator.clone());
    bytes.resize(4 << 20, 1_u8);
    assert!(allocator.resident_bytes().unwrap() >= 4 << 20);
    drop(bytes);
    assert!(allocator.resident_bytes().unwrap() < 1 << 20);
}
