use super::*;

#[test]
fn they_meet_in_the_middle_also_where_numbers_wrap() {
    for first in [0, 7, u16::MAX - 1, u16::MAX] {
        let number = |index: u16| first.wrapping_add(index);
        let offered = Division::default().offer(first, 3).unwrap();
        let (word, helped) = offered.help().unwrap();
        assert_eq!((helped, word.helped()), (number(2), Some(number(2))));
        assert_eq!(word.help(), None, "one folio at a time");
        assert_eq!(word.offer(0, 1), None);
        let Next::Mine(word) = word.next(first) else { panic!("{word:?}") };
        assert_eq!(word.next(number(2)), Next::Helped);
        let word = word.helped_out();
        assert_eq!(word.next(number(2)), Next::MineAlready, "it is written");
        let (word, helped) = word.help().unwrap();
        assert_eq!(helped, number(1));
        let word = word.withdraw();
        assert_eq!(word.next(number(1)), Next::Helped, "withdrawn is not ended");
        assert_eq!(word.helped_out().help(), None);
        assert_eq!(word.helped_out().next(number(1)), Next::MineAlready);
    }
}

#[test]
fn nothing_is_offered_at_first() {
    let word = Division::default();
    assert_eq!((word.help(), word.next(0)), (None, Next::MineAlready));
}
