#[test]
fn every_item_once_and_in_order() {
    let items: Vec<u64> = (0..1000).collect();
    let results = super::parallel(&items, |item| item * 2);
    assert!(results.iter().enumerate().all(|(index, result)| *result == index as u64 * 2));
    assert!(super::parallel(&Vec::<u64>::new(), |item| *item).is_empty());
}
