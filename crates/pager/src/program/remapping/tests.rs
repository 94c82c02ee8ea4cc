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
    let flags = (raw::MREMAP_MAYMOVE | raw::MREMAP_FIXED) as usize;
    let wanted = Move { from, bytes: 5 * PAGE, to, flags };
    if wanted.mover() == Mover::Kernel {
        assert!(!kernel_moves_several(), "there are several mappings");
        return;
    }
    // SAFETY: nothing else uses the memory.
    unsafe { wanted.in_pieces() }.unwrap();
    for (page, value) in [(0, 1), (1, 2), (2, 3), (3, 77), (4, 5)] {
        // SAFETY: as above.
        assert_eq!(unsafe { byte(to + page * PAGE).read() }, value, "page {page}");
    }
    // SAFETY: as above.
    unsafe { munmap(to as *mut _, 5 * PAGE).unwrap() };
}

#[test]
fn the_kernel_moves_one_mapping_and_refuses_none() {
    let (from, to) = (map(4), map(4));
    let flags = (raw::MREMAP_MAYMOVE | raw::MREMAP_FIXED) as usize;
    let wanted = Move { from, bytes: 4 * PAGE, to, flags };
    assert_eq!(wanted.mover(), Mover::Kernel);
    assert!(wanted.is_apart());
    assert!(!Move { to: from + PAGE, ..wanted }.is_apart());
    // A hole at the start.
    // SAFETY: the memory is the test's own.
    unsafe { munmap(from as *mut _, PAGE).unwrap() };
    assert_eq!(wanted.mover(), Mover::Kernel);
    // SAFETY: as above.
    unsafe {
        munmap(from as *mut _, 4 * PAGE).unwrap();
        munmap(to as *mut _, 4 * PAGE).unwrap();
    }
}
