use super::*;
use crate::history::Window;
use crate::page::PageState;
use crate::units::{BLOCK, PAGE, PageAddr, PieceAddr};
use core::ptr::NonNull;
use folioswap_slots::SwapEntry;
use std::alloc::{Layout, alloc_zeroed};

struct Heap;
impl Memory for Heap {
    fn take(&self, bytes: usize) -> Option<NonNull<u8>> {
        // SAFETY: the size is not zero.
        NonNull::new(unsafe { alloc_zeroed(Layout::from_size_align(bytes, PAGE).unwrap()) })
    }
}

#[test]
fn unknown_addresses_have_no_block() {
    let table = PageTable::new();
    assert!(table.block(BlockAddr::containing(0x7f00_0000_0000)).is_none());
    assert!(table.block(BlockAddr::containing(usize::MAX)).is_none());
    assert!(table.block_or_insert(BlockAddr::containing(ADDRESS_END), &Heap).is_none());
}

#[test]
fn blocks_are_found_again_and_walked_in_order() {
    let table = PageTable::new();
    let addresses = [0x5555_5560_0000usize, 0x7f12_3440_0000, 0x7f12_3460_0000, ADDRESS_END - BLOCK];
    for (n, &address) in addresses.iter().enumerate() {
        let block = table.block_or_insert(PageAddr::containing(address + 5 * PAGE), &Heap).unwrap();
        assert!(core::ptr::eq(table.block(PieceAddr::containing(address)).unwrap(), block));
        block.set(
            PageInBlock::new(5),
            PageWord::PRESENT.isolate(SwapEntry::from_raw(n as u64 + 1).unwrap()).unwrap(),
        );
    }
    let mut seen = std::vec::Vec::new();
    table.for_blocks(0, ADDRESS_END, |address, block| {
        seen.push((address.raw(), block.word(PageInBlock::new(5)).state()))
    });
    let want: std::vec::Vec<_> = addresses
        .iter()
        .enumerate()
        .map(|(n, &address)| (address, PageState::Isolated(SwapEntry::from_raw(n as u64 + 1).unwrap())))
        .collect();
    assert_eq!(seen, want);
    let mut part = 0;
    table.for_blocks(addresses[1] + PAGE, addresses[2], |address, _| {
        assert_eq!(address.raw(), addresses[1]);
        part += 1;
    });
    assert_eq!(part, 1);
}

#[test]
fn recycled_blocks_come_back_empty() {
    let table = PageTable::new();
    let block = table.block_or_insert(BlockAddr::containing(BLOCK), &Heap).unwrap();
    block.set(PageInBlock::FIRST, PageWord::PRESENT_HOT);
    block.history.remember(8, 9, 0);
    table.recycle(BlockAddr::containing(BLOCK));
    assert!(table.block(BlockAddr::containing(BLOCK)).is_none());
    assert_eq!(table.blocks(), 0);
    let block = table.block_or_insert(BlockAddr::containing(7 * BLOCK), &Heap).unwrap();
    assert_eq!(block.word(PageInBlock::FIRST), PageWord::PRESENT);
    assert_eq!(block.history.window(9, || None, || None), Window::ONE);
}
