use super::*;

#[test]
fn small_percentages_have_more_digits() {
    let cases = [(0.0, "0 %"), (0.05, "0.050 %"), (5.0, "5.00 %"), (50.0, "50.0 %")];
    for (part, text) in cases {
        assert_eq!(percent(part, 100.0), text);
    }
    assert_eq!(percent(1.0, 0.0), "-");
}

#[test]
fn the_title_stands_above_and_figures_are_aligned_to_the_right() {
    let mut table = Table::new("Rates", &["", "MB/s"]);
    table.rows.push(vec!["ours".to_owned(), "5".to_owned()]);
    let text = table.text();
    assert!(text.starts_with("Rates\n"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("| ours ") && line.ends_with("    5 |")), "{text}");
}
