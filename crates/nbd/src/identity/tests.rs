use super::*;

#[test]
fn a_mark_is_read_as_it_was_written_and_nothing_else_is_one() {
    let contents = Contents { id: [9; 16], count: 77 };
    let block = contents.encode();
    assert_eq!(Contents::decode(&block), Some(contents));
    for index in [0, 20, 35, 50, 72, 4095] {
        let mut changed = block.clone();
        changed[index] ^= 1;
        assert_eq!(Contents::decode(&changed), None, "{index}");
    }
    assert_eq!(Contents::decode(&[0; 4096]), None);
    assert_eq!(Contents::decode(&[]), None);
}
