use super::*;

#[test]
fn what_others_hold_stays() {
    let left = |range, others: &[(usize, usize)]| {
        let others: Vec<_> = others.iter().map(|&(start, end)| start..end).collect();
        let pieces = without(range, &others).into_iter();
        pieces.map(|piece| (piece.start, piece.end)).collect::<Vec<_>>()
    };
    assert_eq!(left(0..10, &[]), [(0, 10)]);
    assert_eq!(left(0..10, &[(2, 4), (6, 7)]), [(0, 2), (4, 6), (7, 10)]);
    assert_eq!(left(3..5, &[(0, 4)]), [(4, 5)]);
    assert_eq!(left(3..5, &[(0, 4), (4, 9)]), []);
}
