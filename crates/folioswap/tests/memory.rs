//! Regions hold what was written to them, whatever the limit does.

use folioswap::{Device, Swap};

/// A region of four times the limit, each page of which is another.
#[test]
fn what_was_written_is_read() {
    for devices in
        [vec![Device::zram()], vec![Device::zram().priority(1), Device::file("/var/tmp").size("256M")]]
    {
        let mut builder = Swap::builder().limit("16M");
        for device in devices {
            builder = builder.device(device);
        }
        let swap = builder.validate().build().unwrap();
        let mut region = swap.region("64M").unwrap();
        let mut word = 1_u64;
        for page in region.as_mut_slice().chunks_mut(4096) {
            for chunk in page.chunks_mut(16) {
                word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) | 1;
                chunk[..8].copy_from_slice(&word.to_ne_bytes());
            }
        }
        let mut word = 1_u64;
        for page in region.as_slice().chunks(4096) {
            for chunk in page.chunks(16) {
                word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) | 1;
                assert_eq!(chunk[..8], word.to_ne_bytes());
            }
        }
        println!("{}", swap.statistics());
        for (name, value) in swap.statistics().all().filter(|(_, value)| *value > 0) {
            println!("  {name} {value}");
        }
    }
}
