//! The frame pool.

mod common;
use common::*;
use folioswap_slots::*;
use folioswap_test_support::memory::Zeroed;

#[test]
fn idle_frames_are_shown_in_runs_and_need_no_zeroing_afterwards() {
    let swap = engine(100);
    plain(&swap, 512 * 100);
    let entries: Vec<_> = (0..40).map(|folio| take(&swap, CPU0, 9, folio)).collect();
    for (folio, entry) in entries.iter().enumerate() {
        give(&swap, *entry, 9, folio as u32);
    }
    let mut shown = Vec::new();
    let count = swap.take_idle_frames(30, |memory, bytes| {
        shown.push(bytes / FRAME);
        // SAFETY: idle memory, locked out of use for the length of this call.
        unsafe { memory.write_bytes(0, bytes) };
        FrameContent::Zeroed
    });
    assert_eq!(count, 30);
    assert_eq!(shown.iter().sum::<usize>(), 30);
    assert!(shown.len() <= 3, "adjacent frames come in one run");
    assert_eq!(swap.take_idle_frames(100, |_, _| FrameContent::Unchanged), 10);
    assert_eq!(swap.take_idle_frames(100, |_, _| FrameContent::Zeroed), 10);
    assert_eq!(swap.take_idle_frames(100, |_, _| FrameContent::Zeroed), 0);
    swap.validate().unwrap();
}

#[test]
fn frames_are_added_piecewise_until_the_chunk_table_is_full() {
    let config = Config { cpus: 1, clusters_max: 64, frame_chunks_max: 2 };
    let swap = engine_with::<Current>(config, 0);
    assert_eq!(swap.swapon(DeviceSpec::new(512)), Err(SwaponError::NoFrame));
    swap.validate().unwrap();
    let memory = Zeroed::new(FRAME * 70);
    // SAFETY: parts of fresh memory that outlives the handle's use.
    unsafe {
        let add = |from: usize, bytes| swap.add_frames(memory.start().add(from), bytes);
        assert_eq!(add(0, FRAME - 1), Err(AddFramesError::TooSmall));
        assert_eq!(add(8, FRAME * 2), Ok(1), "up to 63 bytes are lost to alignment");
        assert_eq!(add(FRAME * 3, FRAME * 65), Err(AddFramesError::ChunkTableFull));
        assert_eq!(add(FRAME * 3, FRAME * 2), Ok(2));
        assert_eq!(add(FRAME * 5, FRAME), Err(AddFramesError::ChunkTableFull));
    }
    assert_eq!((swap.frames_free(), swap.frames_total()), (3, 3));
    swap.swapon(DeviceSpec::new(512)).unwrap();
    swap.validate().unwrap();
}
