use super::*;
use rustix::fs::{MemfdFlags, memfd_create};

fn ring(reads: u32) -> ReadRing {
    ReadRing::new(reads, Box::leak(Box::default())).expect("a ring")
}

fn end_of(ring: &mut ReadRing) -> Ended {
    loop {
        if let Some(ended) = ring.ended() {
            return ended;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_full_ring_refuses_and_goes_on() {
    let file = memfd_create("reads", MemfdFlags::CLOEXEC).unwrap();
    rustix::io::pwrite(&file, &[7; 8192], 0).unwrap();
    let mut pages = vec![0u8; 8192];
    let mut ring = ring(2);
    for round in 0..100u64 {
        for tag in [round, round + 1000] {
            let into = NonNull::from(&mut pages[tag as usize / 1000 * 4096]);
            // SAFETY: the pages are looked at when the read has ended.
            unsafe { ring.submit(file.as_raw_fd(), 4096, into, 4096, tag) }.unwrap();
        }
        let into = NonNull::from(&mut pages[0]);
        // SAFETY: nothing is begun.
        assert_eq!(unsafe { ring.submit(file.as_raw_fd(), 0, into, 4096, 9) }, Err(Errno::AGAIN));
        let mut tags = [end_of(&mut ring).tag, end_of(&mut ring).tag];
        tags.sort_unstable();
        assert_eq!((tags, ring.under_way()), ([round, round + 1000], 0));
        assert!(pages.iter().all(|&byte| byte == 7));
        pages.fill(0);
    }
}

/// A forked child makes its ring in a copy of its parent's memory.
#[test]
fn memory_that_another_ring_used_is_as_good() {
    let file = memfd_create("reads", MemfdFlags::CLOEXEC).unwrap();
    rustix::io::pwrite(&file, &[9; 4096], 0).unwrap();
    let memory = Box::leak(Box::new(RingMemory { queues: [0xa5; 4096], entries: [0xa5; 4096] }));
    let mut ring = ReadRing::new(8, memory).unwrap();
    let mut page = [0u8; 4096];
    // SAFETY: the page is looked at when the read has ended.
    unsafe { ring.submit(file.as_raw_fd(), 0, NonNull::from(&mut page).cast(), 4096, 3) }.unwrap();
    let ended = end_of(&mut ring);
    assert_eq!((ended.tag, ended.read, page), (3, Ok(4096), [9; 4096]));
}

/// Whoever writes to the ring's memory has the kernel do nothing but reads.
#[test]
fn the_kernel_refuses_all_but_reads() {
    let mut ring = ring(4);
    let file = memfd_create("reads", MemfdFlags::CLOEXEC).unwrap();
    for opcode in [IoringOp::Nop, IoringOp::Write, IoringOp::Openat, IoringOp::Connect, IoringOp::Close] {
        let entry = io_uring_sqe { opcode, fd: file.as_raw_fd(), ..Default::default() };
        // SAFETY: the entry has no address.
        unsafe { ring.enter(entry) }.unwrap();
        assert_eq!(end_of(&mut ring).read, Err(Errno::ACCESS), "{opcode:?}");
    }
    let nothing = core::ptr::null();
    // SAFETY: nothing is read.
    let more = unsafe { io_uring_register(ring.as_fd(), IoringRegisterOp::RegisterProbe, nothing, 0) };
    assert_eq!(more, Err(Errno::ACCESS));
}

#[test]
fn counters_that_somebody_writes_make_up_no_read() {
    let mut ring = ring(4);
    ring.counter(ring.parameters.cq_off.tail).store(77, Relaxed);
    assert!(ring.ended().is_none());
}
