use super::*;

#[test]
fn which_orders_are_tried_whole() {
    let tried = |large: LargeFolios| Order::all().map(|order| large.tries_whole(order)).collect::<Vec<_>>();
    assert_eq!(tried(LargeFolios::SplitFirst), [&[true][..], &[false; 9]].concat());
    assert_eq!(tried(LargeFolios::OnlyHugeWhole), [&[true][..], &[false; 8], &[true]].concat());
    assert_eq!(tried(LargeFolios::Whole), [true; 10]);
}

#[test]
fn a_split_leaves_every_page_once() {
    let folio = Folio { task: 3, first: 32, order: Order::new(4).unwrap() };
    let pages: Vec<Folio> = folio.split().collect();
    assert_eq!(pages.iter().map(|page| page.first).collect::<Vec<_>>(), (32..48).collect::<Vec<_>>());
    assert!(pages.iter().all(|page| page.task == 3 && page.order == Order::ZERO));
}
