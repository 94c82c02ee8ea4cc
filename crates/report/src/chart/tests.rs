use super::*;

fn chart(values: &[(&str, &str, f64)]) -> Chart {
    let bars = values.iter().map(|&(group, label, value)| Bar {
        group: group.to_owned(),
        label: label.to_owned(),
        value,
        spread: (value * 0.9, value * 1.1),
    });
    Chart { title: "System time".to_owned(), axis: "seconds".to_owned(), bars: bars.collect() }
}

fn fills(svg: &str) -> Vec<&str> {
    let bars = svg.lines().filter(|line| line.contains("height=\"14\""));
    bars.filter_map(|line| line.split("fill=\"").nth(1)?.split('"').next()).collect()
}

#[test]
fn bars_of_one_name_have_one_colour_in_every_group_and_a_place_in_the_legend() {
    let values =
        [("64 kB", "before", 4.0), ("64 kB", "after", 2.0), ("2 MB", "before", 3.0), ("2 MB", "after", 1.0)];
    let svg = chart(&values).svg(&["96 CPUs".to_owned()]);
    let fills = fills(&svg);
    assert_eq!((fills[0], fills[1]), (fills[2], fills[3]));
    assert_ne!(fills[0], fills[1]);
    assert_eq!(svg.matches("width=\"12\" height=\"12\"").count(), 2, "the legend");
    assert_eq!(svg.matches(">64 kB</text>").count(), 1, "a group is named once");
    assert!(svg.contains(">96 CPUs</text>"), "sizes stand below the title");
}

#[test]
fn no_group_name_and_no_value_is_cut_off() {
    let long = "series 1, build, all sizes, zram as the published 10 G (13.16 % of 512 kB fail), 96 CPUs";
    let svg = chart(&[(long, "before", 1e6), (long, "after", 9e5)]).svg(&[]);
    assert!(svg.contains(&format!(">{long}</text>")));
    for line in svg.lines().filter(|line| line.starts_with("<text")) {
        let x: f64 = line.split('"').nth(1).unwrap().parse().unwrap();
        let (start, end) = (line.find('>').unwrap() + 1, line.rfind("</text>").unwrap());
        // A character of 13 px is at most 8 px wide.
        let width = 8.0 * line[start..end].chars().count() as f64;
        let from = if line.contains("\"end\"") { x - width } else { x };
        let to = if line.contains("\"end\"") { x } else { x + width };
        assert!(line.contains("middle") || from >= -30.0 && to <= WIDTH, "{line}");
    }
}

#[test]
fn values_that_differ_a_hundredfold_have_a_logarithmic_axis_and_zero_keeps_it_linear() {
    let wide = chart(&[("a", "x", 1.0), ("a", "y", 2000.0)]);
    assert_eq!(Scale::of(&wide.bars), Scale::Log { start: 1.0, end: 10_000.0 });
    assert!(wide.svg(&[]).contains("seconds, logarithmic"));
    let zero = chart(&[("a", "x", 0.0), ("a", "y", 2000.0)]);
    assert!(matches!(Scale::of(&zero.bars), Scale::Linear { .. }));
    let odd = chart(&[("a", "x", f64::NAN), ("a", "y", f64::INFINITY)]);
    assert!(!odd.svg(&[]).contains("NaN"));
}

#[test]
fn names_are_escaped() {
    let svg = chart(&[("<a & b>", "x", 1.0)]).svg(&[]);
    assert!(svg.contains("&lt;a &amp; b&gt;") && !svg.contains("<a & b>"));
}
