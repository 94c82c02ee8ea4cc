use super::*;
use crate::memory::Mapping;

const SMAPS: &str = "\
1000-3000 r-xp 00000000 00:00 0 /usr/bin/x
Rss:                   8 kB
AnonHugePages:         0 kB
400000-800000 rw-p 00000000 00:00 0
Size:               4096 kB
Rss:                4096 kB
AnonHugePages:      2048 kB
800000-801000 rw-p 00000000 00:00 0
Rss:                   4 kB
AnonHugePages:         0 kB
";

#[test]
fn only_the_mappings_of_the_range_count() {
    let both = parse(SMAPS, &(0x40_0000..0x80_1000));
    assert_eq!(both, Resident { bytes: 4100 << 10, huge_bytes: 2048 << 10 });
    let first = parse(SMAPS, &(0x40_0000..0x80_0000));
    assert_eq!(first.huge(), Some(0.5));
    assert_eq!(parse(SMAPS, &(0x90_0000..0x90_1000)).huge(), None);
}

#[test]
fn what_is_touched_is_resident() {
    let mut memory = Mapping::new(64 << 20);
    memory.advise(libc::MADV_NOHUGEPAGE);
    for page in 0..1000 {
        memory[page * 4096] = 1;
    }
    let start = memory.as_ptr() as usize;
    let resident = Resident::of(start..start + memory.len()).unwrap();
    assert!((1000 * 4096..1100 * 4096).contains(&resident.bytes), "{resident:?}");
    assert_eq!(resident.huge_bytes, 0);
}
