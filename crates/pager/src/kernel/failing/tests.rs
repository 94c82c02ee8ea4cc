use super::*;

#[test]
fn one_in_so_many_fails_in_every_way() {
    let mut hits = 0;
    let mut ways = [0; 3];
    for call in 0..100_000u64 {
        let mixed = splitmix(call.wrapping_mul(STEP));
        if mixed.is_multiple_of(20) {
            hits += 1;
            ways[Failure(mixed >> 32).one_of([0, 1, 2])] += 1;
        }
    }
    assert!((4_500..5_500).contains(&hits), "{hits}");
    assert!(ways.iter().all(|&count| count > hits / 4), "{ways:?}");
    assert_eq!(next(), None, "nothing fails unless it is wanted");
}
