use super::*;
use crate::PAGE;
use proptest::prelude::*;

proptest! {
    /// Against an array of pages: no page is handed out twice, none is lost, neighbours are
    /// joined.
    #[test]
    fn pages_are_free_or_taken_and_never_both(
        steps in prop::collection::vec(
            (1_usize..40, any::<bool>(), any::<prop::sample::Index>()),
            1..200,
        ),
    ) {
        const PAGES: usize = 256;
        let mut extents = Extents::default();
        let mut free = [Some(Contents::Zero); PAGES];
        let mut taken: Vec<(usize, usize)> = Vec::new();
        extents.insert(0, PAGES * PAGE, Contents::Zero);
        for (pages, flag, index) in steps {
            let contents = if flag { Contents::Left } else { Contents::Zero };
            if index.index(2) == 0 || taken.is_empty() {
                let has_room = |wanted| {
                    free.windows(pages).any(|window| window.iter().all(|page| *page == Some(wanted)))
                };
                match extents.take(pages * PAGE, contents) {
                    Some(start) => {
                        let first = start / PAGE;
                        prop_assert!(free[first..first + pages].iter().all(|page| *page == Some(contents)));
                        free[first..first + pages].fill(None);
                        taken.push((first, pages));
                    }
                    None => prop_assert!(!has_room(contents), "there was room"),
                }
            } else {
                let (first, pages) = taken.swap_remove(index.index(taken.len()));
                extents.insert(first * PAGE, pages * PAGE, contents);
                free[first..first + pages].fill(Some(contents));
            }
            for contents in [Contents::Zero, Contents::Left] {
                let count = free.iter().filter(|page| **page == Some(contents)).count();
                prop_assert_eq!(extents.bytes(contents), count * PAGE);
            }
        }
    }
}

#[test]
fn large_pieces_begin_at_a_huge_page_where_they_can() {
    let mut extents = Extents::default();
    extents.insert(BLOCK, 4 * BLOCK, Contents::Zero);
    assert_eq!(extents.take(PAGE, Contents::Zero), Some(BLOCK));
    assert_eq!(extents.take(BLOCK, Contents::Zero), Some(2 * BLOCK));
    assert_eq!(extents.take(2 * BLOCK, Contents::Zero), Some(3 * BLOCK));
    assert_eq!(extents.take(BLOCK - PAGE, Contents::Zero), Some(BLOCK + PAGE));
    assert_eq!(extents.take(PAGE, Contents::Zero), None);
}
