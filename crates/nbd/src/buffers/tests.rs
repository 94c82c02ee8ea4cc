use super::*;

#[test]
fn a_buffer_comes_again_and_not_too_many_are_kept() {
    // No other test uses this length.
    let length = 12_345;
    let mut buffer = take(length);
    buffer[7] = 9;
    let place = buffer.as_ptr();
    give_back(buffer);
    let again = take(length);
    assert_eq!((again.len(), again[7]), (length, 9));
    assert_eq!(again.as_ptr(), place);
    for _ in 0..1000 {
        give_back(vec![0; length]);
    }
    let stock = STOCK.lock().expect("nobody panics here");
    assert!(stock.bytes <= KEPT_BYTES);
    assert_eq!(stock.bytes, stock.buffers.iter().map(Vec::len).sum::<usize>());
}
