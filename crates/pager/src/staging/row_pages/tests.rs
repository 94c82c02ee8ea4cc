use super::*;

#[test]
fn runs_reach_over_pieces_and_end_at_gaps() {
    let mut pages = RowPages::NONE;
    assert!(pages.is_empty());
    pages.add(14, 20);
    pages.add(40, 1);
    pages.add(ROW_PAGES - 3, 3);
    let runs = [(0, 0), (14, 20), (15, 19), (16, 18), (33, 1), (34, 0), (40, 1), (ROW_PAGES - 3, 3)];
    for (first, run) in runs {
        assert_eq!(pages.run(first, ROW_PAGES), run, "{first}");
    }
    assert_eq!(pages.run(14, 5), 5);
    assert_eq!([pages.of_piece(0), pages.of_piece(1), pages.of_piece(2)], [0xc000, 0xffff, 0x0103]);
    pages.set_piece(1, 0);
    assert_eq!(pages.run(14, ROW_PAGES), 2);
}
