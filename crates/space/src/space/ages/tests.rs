use super::*;
use std::collections::VecDeque;
use std::vec::Vec;

#[test]
fn nothing_is_stored_at_first() {
    assert_eq!((Ages::default().oldest(), Ages::default().total()), (None, 0));
}

#[test]
fn in_a_store_that_turns_over_the_oldest_are_found_first() {
    let ages = Ages::default();
    let mut stored = VecDeque::new();
    let capacity = 40_000;
    for time in 0..20 * capacity {
        stored.push_back((time, ages.stored()));
        if stored.len() > capacity {
            let oldest = ages.oldest().unwrap();
            // The page at the queue's front is the oldest: by generations it is the same, to an
            // eighth of all.
            let (front, generation) = stored.pop_front().unwrap();
            assert_eq!(generation, oldest, "at {front}");
            ages.gone(generation);
        }
    }
    assert_eq!(ages.total(), capacity as u64);
    let generations = stored.iter().map(|(_, generation)| generation.raw());
    let (first, last) = (generations.clone().min().unwrap(), generations.max().unwrap());
    assert!((7..=10).contains(&(last - first)), "{first} to {last}");
}

#[test]
fn what_stays_for_ever_stays_the_oldest_and_stops_nothing() {
    let ages = Ages::default();
    let cold = ages.stored();
    for _ in 0..200_000 {
        let hot = ages.stored();
        ages.gone(hot);
        assert_eq!(ages.oldest(), Some(cold));
    }
    let stored: Vec<_> = (0..200_000).map(|_| ages.stored()).collect();
    // The number of the cold page's generation is not given to another one meanwhile.
    assert_eq!(stored.last().unwrap().raw(), GENERATIONS - 1);
    assert_eq!(ages.oldest(), Some(cold));
    let alike = stored.iter().filter(|&&generation| generation == cold);
    alike.for_each(|&generation| ages.gone(generation));
    assert_eq!(ages.oldest(), Some(cold));
    ages.gone(cold);
    assert_eq!(ages.oldest(), Some(cold.next()));
    assert!(ages.total() > 190_000);
}
