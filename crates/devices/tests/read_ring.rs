//! Asynchronous reads on a real file with O_DIRECT.

use folioswap_devices::create::create_swap_file;
use folioswap_devices::read_ring::{Ended, ReadRing};
use folioswap_devices::{FileDevice, FileSlot, Page};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::collections::HashMap;
use std::ptr::NonNull;

#[repr(align(4096))]
struct Pages([Page; 64]);

fn slot(number: u64) -> FileSlot {
    FileSlot::new(number).unwrap()
}

fn ring(reads: u32) -> Option<ReadRing> {
    match ReadRing::new(reads, Box::leak(Box::default())) {
        Err(why @ (Errno::PERM | Errno::NOSYS)) => {
            eprintln!("skipped: io_uring: {why}");
            None
        }
        made => Some(made.expect("a ring")),
    }
}

fn wait(ring: &mut ReadRing) -> Ended {
    loop {
        if let Some(ended) = ring.ended() {
            return ended;
        }
        poll(&mut [PollFd::new(ring, PollFlags::IN)], None).unwrap();
    }
}

#[test]
fn many_reads_at_a_time_bring_what_was_written() {
    let Some(mut ring) = ring(8) else { return };
    let file = create_swap_file(std::path::Path::new("/var/tmp")).unwrap();
    let device = FileDevice::new(file.as_fd());
    let mut written = Box::new(Pages([[0; 4096]; 64]));
    for (number, page) in written.0.iter_mut().enumerate() {
        page.fill(number as u8 + 1);
    }
    device.write(slot(0), written.0.as_flattened()).unwrap();
    let mut read = Box::new(Pages([[0; 4096]; 64]));
    let places: Vec<NonNull<u8>> = read.0.iter_mut().map(|page| NonNull::from(page).cast()).collect();
    let mut begun = HashMap::new();
    for round in 0..200u64 {
        // Up to eight reads at a time, of one to four pages; each has eight pages of its own.
        for index in 0..8u64 {
            let first = (round * 7 + index * 11) % 60;
            let pages = 1 + (round + index) % 4;
            // SAFETY: eight pages of `read` belong to this tag until it has ended.
            unsafe {
                ring.begin(device, slot(first), places[index as usize * 8], pages as usize * 4096, index)
                    .unwrap();
            }
            begun.insert(index, (first, pages));
        }
        assert_eq!(ring.under_way(), 8);
        // SAFETY: the request is refused, so nothing is read there.
        let one_more = unsafe { ring.begin(device, slot(0), places[0], 4096, 99) };
        assert_eq!(one_more, Err(Errno::AGAIN));
        while ring.under_way() > 0 {
            let Ended { tag, read: bytes } = wait(&mut ring);
            let (first, pages) = begun.remove(&tag).expect("begun, and ended once");
            assert_eq!(bytes, Ok(pages as usize * 4096));
            for page in 0..pages {
                let found = &read.0[(tag * 8 + page) as usize];
                assert!(
                    found.iter().all(|&byte| u64::from(byte) == first + page + 1),
                    "round {round}, tag {tag}"
                );
            }
        }
        assert!(begun.is_empty() && ring.ended().is_none());
    }
}

#[test]
fn what_cannot_be_read_is_told() {
    let Some(mut ring) = ring(2) else { return };
    let file = create_swap_file(std::path::Path::new("/var/tmp")).unwrap();
    let device = FileDevice::new(file.as_fd());
    let mut read = Box::new(Pages([[0; 4096]; 64]));
    let place = NonNull::from(&mut read.0[0]).cast();
    // SAFETY: nothing uses `read` before the end.
    unsafe { ring.begin(device, slot(5), place, 4096, 1) }.unwrap();
    assert_eq!(wait(&mut ring), Ended { tag: 1, read: Ok(0) }, "behind the end of the file");
    let (_, closed_for_reading) = std::io::pipe().unwrap();
    let device = FileDevice::new(closed_for_reading.as_fd());
    // SAFETY: as above.
    unsafe { ring.begin(device, slot(0), place, 4096, 2) }.unwrap();
    let ended = wait(&mut ring);
    assert_eq!(ended.tag, 2);
    assert!(ended.read.is_err(), "{ended:?}");
}
