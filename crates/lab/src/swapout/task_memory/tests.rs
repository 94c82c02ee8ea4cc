use super::*;

#[test]
fn what_is_taken_away_reads_as_zeroes_and_the_rest_stays() {
    let mut unmapper = Unmapper::new().unwrap();
    let found = unmapper.by();
    for process in [unmapper.process.take(), None] {
        unmapper.process = process;
        let mut memory = TaskMemory::map(64, HugePages::Never).unwrap();
        memory.populate(0, 64).unwrap();
        memory.words(0, 64).fill(7);
        for first in [3, 16] {
            // SAFETY: the page is mapped, and its content is not needed.
            unsafe { unmapper.add(memory.page(first), 2) };
        }
        unmapper.flush();
        let zero: Vec<usize> = memory
            .words(0, 64)
            .chunks(PAGE / 8)
            .enumerate()
            .filter(|(_, page)| page[0] == 0)
            .map(|(index, _)| index)
            .collect();
        assert_eq!(zero, [3, 4, 16, 17], "{found:?}");
    }
}

#[test]
fn memory_begins_at_a_huge_page() {
    let memory = TaskMemory::map(3, HugePages::Asked).unwrap();
    assert!(memory.page(0).cast::<[u8; HUGE]>().as_ptr().addr().is_multiple_of(HUGE));
}
