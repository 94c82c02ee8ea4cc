use super::*;

/// Whether the kernel leaves the mapping at `address` out of a child ("dc" in the VmFlags of
/// proc_pid_smaps(5)).
fn is_left_out(address: usize) -> bool {
    let smaps = std::fs::read_to_string("/proc/self/smaps").expect("our own mappings");
    let mut inside = false;
    for line in smaps.lines() {
        let range = line.split(' ').next().and_then(|word| word.split_once('-'));
        if let Some((start, end)) = range
            && let (Ok(start), Ok(end)) = (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16))
        {
            inside = (start..end).contains(&address);
        } else if inside && line.starts_with("VmFlags:") {
            return line.split(' ').any(|flag| flag == "dc");
        }
    }
    panic!("nothing is mapped at {address:#x}");
}

#[test]
fn a_child_without_our_code_finds_only_what_was_made_first() {
    let arena = Arena::create().expect("memory");
    // SAFETY: it is never unmapped.
    let arena: &'static Arena = unsafe { arena.as_ref() };
    let first = arena.take(PAGE).expect("memory").as_ptr() as usize;
    arena.bequeath_to(Heirs::Nobody);
    let store = arena.take(4 << 20).expect("memory").as_ptr() as usize;
    let staging = arena.own_mapping(1 << 20).expect("memory").as_ptr() as usize;
    let left_out = || [first, store, staging].map(is_left_out);
    assert_eq!(left_out(), [false, true, true]);
    arena.bequeath_to(Heirs::ForkedChild);
    assert_eq!(left_out(), [false, false, false], "the C library's child needs all of it");
    arena.bequeath_to(Heirs::Nobody);
    assert_eq!(left_out(), [false, true, true]);
}

#[test]
fn the_store_becomes_resident_as_it_is_told_to() {
    let arena = Arena::create().expect("memory");
    // SAFETY: it is never unmapped.
    let arena: &'static Arena = unsafe { arena.as_ref() };
    let chunk = arena.map(BLOCK).expect("memory");
    let pagemap = std::fs::File::open("/proc/self/pagemap").expect("our own");
    let resident = |page: usize| {
        let address = chunk.as_ptr() as usize + page * PAGE;
        crate::kernel::pagemap::now(std::os::fd::AsRawFd::as_raw_fd(&pagemap), address, 16).unwrap().present
    };
    assert_eq!(arena.will_write(chunk, 16 * PAGE), Prefault::Not);
    assert_eq!(resident(0), 0);
    arena.let_store_come(StorePages::Together);
    // SAFETY: within the chunk.
    unsafe { *chunk.as_ptr().add(17 * PAGE) = 7 };
    assert_eq!(arena.will_write(chunk, 32 * PAGE), Prefault::Done);
    assert_eq!([resident(0), resident(16), resident(32)], [u16::MAX, u16::MAX, 0]);
    // SAFETY: within the chunk.
    assert_eq!(unsafe { *chunk.as_ptr().add(17 * PAGE) }, 7);
}

#[test]
fn gaps_are_all_but_the_own_mappings() {
    let arena = Arena::create().expect("memory");
    // SAFETY: it is never unmapped.
    let arena: &'static Arena = unsafe { arena.as_ref() };
    let own = arena.own_mapping(4 * PAGE).expect("memory").as_ptr() as usize;
    let gaps = |start: usize, end: usize| {
        let mut found = std::vec::Vec::new();
        arena.for_gaps(start, end, |gap| found.push((gap.start, gap.end)));
        found
    };
    assert!(gaps(own, own + 4 * PAGE).is_empty());
    assert!(gaps(own + PAGE, own + 2 * PAGE).is_empty());
    let (mut at, mut bytes) = (own - 64 * PAGE, 0);
    for (start, end) in gaps(own - 64 * PAGE, own + 64 * PAGE) {
        assert!(at <= start && start < end, "ascending and not empty");
        arena.for_pieces(start, end, |_, _| panic!("{start:#x}..{end:#x} is the arena's"));
        (at, bytes) = (end, bytes + end - start);
    }
    assert!(at <= own + 64 * PAGE && bytes <= 124 * PAGE);
    arena.for_pieces(own - 64 * PAGE, own + 64 * PAGE, |start, end| {
        bytes += end.min(own + 64 * PAGE) - start.max(own - 64 * PAGE);
    });
    assert_eq!(bytes, 128 * PAGE, "gaps and own mappings are all of the range");
}
