use super::*;
use rustix::fd::AsFd;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

#[repr(C, align(4096))]
struct Pages([[u8; PAGE_SIZE]; 8]);

fn pages() -> Pages {
    let mut pages = Pages([[0; PAGE_SIZE]; 8]);
    pages.0.iter_mut().zip(1..).for_each(|(page, number)| page.fill(number));
    pages
}

/// Pages 6 and 7, 0, and 2 to 4.
fn parts(pages: &Pages) -> [&[u8]; 3] {
    [pages.0[6..8].as_flattened(), &pages.0[0], pages.0[2..5].as_flattened()]
}

#[test]
fn parts_from_several_places_become_one_run() {
    let file = memfd_create("parts", MemfdFlags::CLOEXEC).unwrap();
    let (device, pages) = (FileDevice::new(file.as_fd()), pages());
    let slot = FileSlot::new(5).unwrap();
    device.write_parts(slot, &parts(&pages)).unwrap();
    let mut read = Pages([[0; PAGE_SIZE]; 8]);
    device.read(slot, read.0[..6].as_flattened_mut()).unwrap();
    for (page, number) in read.0.iter().zip([7, 8, 1, 3, 4, 5]) {
        assert!(page.iter().all(|&byte| byte == number), "{number}");
    }
    let bad = Err(FileError::BadBuffer { slot });
    assert_eq!(device.write_parts(slot, &[]), bad);
    assert_eq!(device.write_parts(slot, &[&pages.0[0][..]; PARTS_MAX + 1]), bad);
    assert_eq!(device.write_parts(slot, &[&pages.0[0], &pages.0[1][..512]]), bad);
    assert_eq!(device.write_parts(slot, &[&pages.0[0], &pages.0.as_flattened()[8..][..PAGE_SIZE]]), bad);
    let single = device.taking(Orders::ONLY_ZERO).write_parts(slot, &parts(&pages));
    assert_eq!(single, Err(FileError::OrderNotTaken { slot, pages: 6 }));
}

/// The bytes written before the end of the file count, and the slot at which the file ends is
/// named.
#[test]
fn a_short_write_goes_on_in_the_middle_of_its_parts() {
    let file = memfd_create("parts", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, 4 * PAGE_SIZE as u64).unwrap();
    fcntl_add_seals(&file, SealFlags::GROW).unwrap();
    let (device, pages) = (FileDevice::new(file.as_fd()), pages());
    let refused = device.write_parts(FileSlot::new(0).unwrap(), &parts(&pages));
    assert_eq!(refused, Err(FileError::Write { slot: FileSlot::new(4).unwrap(), errno: Errno::PERM }));
    let mut read = Pages([[0; PAGE_SIZE]; 8]);
    device.read(FileSlot::new(0).unwrap(), read.0[..4].as_flattened_mut()).unwrap();
    assert_eq!(read.0[..4].iter().map(|page| page[0]).collect::<std::vec::Vec<_>>(), [7, 8, 1, 3]);
}
