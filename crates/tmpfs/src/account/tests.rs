use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

#[derive(Clone, Debug)]
enum Step {
    Add(u64, u64, u64),
    Remove(u64, u64, u64),
    Take,
    TakeBut(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..4_u64, 0..2000_u64, 1..700_u64).prop_map(|(inode, page, count)| Step::Add(inode, page, count)),
        (0..4_u64, 0..2000_u64, 0..1500_u64)
            .prop_map(|(inode, page, count)| Step::Remove(inode, page, count)),
        (0..4_u64, 0..2000_u64).prop_map(|(inode, page)| Step::Remove(inode, page, u64::MAX - page)),
        Just(Step::Take),
        (0..4_u64).prop_map(Step::TakeBut),
    ]
}

proptest! {
    #[test]
    fn as_a_set_of_pages(steps in proptest::collection::vec(step(), 0..120)) {
        let mut account = CacheAccount::default();
        let mut pages: BTreeSet<(u64, u64)> = BTreeSet::new();
        let mut age: Vec<ChunkId> = Vec::new();
        for step in steps {
            match step {
                Step::Add(inode, page, count) => {
                    account.add(inode, page..page + count);
                    pages.extend((page..page + count).map(|page| (inode, page)));
                    for id in CacheAccount::chunks_of(inode, page..page + count) {
                        if !age.contains(&id) {
                            age.push(id);
                        }
                    }
                }
                Step::Remove(inode, page, count) => {
                    let removed = page..page + count;
                    let any = pages.iter().any(|&(other, at)| other == inode && removed.contains(&at));
                    prop_assert_eq!(account.any(inode, &removed), any);
                    account.remove(inode, removed.clone());
                    pages.retain(|&(other, at)| other != inode || !removed.contains(&at));
                }
                Step::Take | Step::TakeBut(_) => {
                    let kept = if let Step::TakeBut(kept) = step { kept } else { u64::MAX };
                    let free = |id: ChunkId| id.inode != kept;
                    let expected = age.iter().position(|&id| free(id)).map(|at| age.remove(at));
                    prop_assert_eq!(account.take_oldest(free), expected);
                    if let Some(id) = expected {
                        pages.retain(|&(inode, page)| inode != id.inode || page / CHUNK_PAGES != id.chunk);
                    }
                }
            }
            age.retain(|id| pages.iter().any(|&(inode, page)| inode == id.inode && page / CHUNK_PAGES == id.chunk));
            prop_assert_eq!(account.pages(), pages.len() as u64);
            for inode in 0..4 {
                prop_assert_eq!(account.knows(inode), pages.iter().any(|&(other, _)| other == inode));
            }
        }
    }
}

#[test]
fn what_means_nothing_does_not_pile_up() {
    let mut account = CacheAccount::default();
    for file in 0..100_000 {
        account.add(file, 0..1);
        account.remove(file, 0..u64::MAX);
    }
    assert_eq!((account.pages(), account.files.len()), (0, 0));
    assert!(account.order.len() <= 64, "{}", account.order.len());
}
