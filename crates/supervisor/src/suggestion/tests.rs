use super::*;

#[test]
fn typos_find_their_word_and_other_words_none() {
    let known = ["zram", "ram", "file", "nbd"];
    for (word, meant) in [("fiel", "file"), ("zarm", "zram"), ("ZRAM", "zram"), ("flie", "file")] {
        assert_eq!(did_you_mean(word, &known), format!("; did you mean '{meant}'?"));
    }
    for word in ["", "tape", "x"] {
        assert_eq!(did_you_mean(word, &known), "", "{word}");
    }
}
