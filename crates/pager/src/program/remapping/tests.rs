use super::*;

fn map(pages: usize) -> usize {
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new mapping.
    unsafe { mmap_anonymous(core::ptr::null_mut(), pages * PAGE, access, flags) }.unwrap() as usize
}

/// Three mappings of a page each, the middle one for reading only, then a gap, then one more.
#[test]
fn mappings_move_with_their_gaps() {
    let (from, to) = (map(5), map(5));
    let byte = |address: usize| address as *mut u8;
    for page in [0, 1, 2, 4] {
        // SAFETY: the memory is mapped and the test's own.
        unsafe { byte(from + page * PAGE).write(page as u8 + 1) };
    }
    // SAFETY: as above.
    unsafe {
        byte(to + 3 * PAGE).write(77);
        rustix::mm::mprotect((from + PAGE) as *mut _, PAGE, rustix::mm::MprotectFlags::READ).unwrap();
        munmap((from + 3 * PAGE) as *mut _, PAGE).unwrap();
    }
    let wanted = Move { from, bytes: 5 * PAGE, to };
    // SAFETY: nothing else uses the memory.
    let moved = unsafe { wanted.in_pieces() };
    if moved == Ok(Whole::NotOfThisKernel) {
        return;
    }
    assert_eq!(moved, Ok(Whole::Moved));
    for (page, value) in [(0, 1), (1, 2), (2, 3), (3, 77), (4, 5)] {
        // SAFETY: as above.
        assert_eq!(unsafe { byte(to + page * PAGE).read() }, value, "page {page}");
    }
    // SAFETY: as above.
    unsafe { munmap(to as *mut _, 5 * PAGE).unwrap() };
}
