//! A page that its device has lost between the end of its write-back and the change of its word.

use super::*;
use crate::engine::link;
use crate::fault::buffers::Buffers;
use crate::fault::handler::Handler;
use crate::kernel::uffd::Access;
use crate::test_memory::{attach_file, fault, map, moving_engine};
use crate::units::{BlockAddr, PageAddr};
use core::sync::atomic::Ordering::Relaxed;
use folioswap_group::protocol::Lost;
use folioswap_slots::{FolioId, Order};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;

#[repr(align(4096))]
struct Aligned(Page);

/// The device has lost the page. The fault comes when the page has left the swap cache, and before
/// the evictor sets its word.
#[test]
fn what_is_lost_before_its_word_says_that_it_is_stored_is_given_up_once() {
    let Some(engine) = moving_engine() else { return };
    let file = attach_file(engine, 512);
    let device = DeviceId::new(0).unwrap();
    engine.space.file_space().add([(0, device)].into_iter());
    let (control, supervisor) = UnixDatagram::pair().unwrap();
    engine.descriptors.control.store(control.as_raw_fd(), Relaxed);
    let address = map(PAGE);
    engine.register_pieces(address, address + PAGE);
    let (block, index) = (
        engine.table.block_or_insert(BlockAddr::containing(address), engine.arena).unwrap(),
        PageAddr::containing(address).index(),
    );
    engine.space.reserve_frames().unwrap();
    let entry = engine.space.allocate(Order::ZERO, FolioId(0)).unwrap();
    let contents = Aligned([0x5a; PAGE]);
    engine.space.write_run(&[Some(entry)], &contents.0, DeviceMask::ALL).unwrap();
    let slot = engine.space.file_slot(entry).unwrap();
    rustix::io::pwrite(&file, &[0x77; PAGE], slot.raw() * PAGE as u64).unwrap();
    let leaving = PageWord::PRESENT.isolate(entry).and_then(PageWord::moved).unwrap();
    block.set(index, leaving);
    engine.note_gone(1);
    engine.space.leave_cache(entry, 1, engine.workingset.shadow());
    let mut handler = Handler::new(engine, Buffers::of(engine).unwrap());
    handler.serve(fault(address, Access::Read, 0));
    assert!(!engine.say_stored(Some(block), index, entry), "nobody has it any more");
    assert_eq!(block.word(index), PageWord::PRESENT);
    let (told, _) = link::receive(supervisor.as_raw_fd()).unwrap();
    let lost = Lost::CorruptOnDevice { slot: slot.raw() };
    assert_eq!(told.words, [Note::Poisoned as u64, address as u64, lost.pack()]);
    assert_eq!(engine.figures().counter(Counter::Poisoned), 1);
    assert_eq!(engine.validate(), Ok(0));
}
