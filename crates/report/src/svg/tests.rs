use super::*;

/// Whether each element that is opened is closed, and no text breaks out of its element.
fn is_well_formed(svg: &str) -> bool {
    let mut open = Vec::new();
    for part in svg.split('<').skip(1) {
        let Some((tag, text)) = part.split_once('>') else { return false };
        if text.contains('>') || tag.matches('"').count() % 2 != 0 {
            return false;
        }
        let name: String =
            tag.trim_start_matches('/').chars().take_while(char::is_ascii_alphanumeric).collect();
        if tag.starts_with('/') {
            if open.pop() != Some(name) {
                return false;
            }
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
    open.is_empty()
}

fn time_chart(values: Vec<f64>, arrangement: Arrangement) -> String {
    let times: Vec<f64> = (0..values.len()).map(|second| second as f64).collect();
    let series = vec![
        Series { name: "<a> & 'b'".to_owned(), values: values.clone() },
        Series { name: "c".to_owned(), values },
    ];
    TimeChart { times: &times, series, arrangement, unit: "MiB", mark: Some((3.0, "limit".to_owned())) }
        .svg("a \"chart\"")
}

#[test]
fn charts_are_well_formed_whatever_they_show() {
    for arrangement in [Arrangement::Lines, Arrangement::Stacked] {
        for values in [vec![], vec![0.0], vec![1.0, 5.0, 2.0], vec![f64::NAN, 1.0], vec![f64::INFINITY, 0.0]]
        {
            let svg = time_chart(values.clone(), arrangement);
            assert!(is_well_formed(&svg), "{values:?}: {svg}");
            assert!(!svg.contains("inf"), "{values:?}: {svg}");
        }
    }
    let bars =
        BarChart { bars: (0..40).map(|bar| (format!("<{bar}>"), f64::from(bar))).collect(), unit: "faults" };
    assert!(is_well_formed(&bars.svg("bars")));
    let curve = CurveChart {
        points: vec![(1.0, 9.0), (2.0, 0.0)],
        x: "MiB",
        y: "pages",
        mark: Some((1.0, "here".to_owned())),
    };
    assert!(is_well_formed(&curve.svg("curve")));
    let spans = [
        Span { name: "sh".to_owned(), began: 0.0, ended: 2.0 },
        Span { name: "</svg>".to_owned(), began: 1.0, ended: 9.0 },
    ];
    assert!(is_well_formed(&gantt("processes", &spans, 3.0)));
}

#[test]
fn the_limit_is_within_the_chart() {
    let svg = time_chart(vec![1.0, 1.0], Arrangement::Lines);
    let mark = svg.lines().find(|line| line.contains("class=\"mark\"")).expect("a mark");
    let y: f64 = mark
        .split("y1=\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .and_then(|y| y.parse().ok())
        .expect("a number");
    assert!((9.0..211.0).contains(&y), "{mark}");
}

#[test]
fn axes_end_at_round_numbers_above_the_values() {
    for (most, end) in [(0.0, 1.0), (0.7, 0.8), (1.0, 1.0), (17.0, 20.0), (99.0, 100.0), (512.0, 600.0)] {
        assert!((axis_end(most) - end).abs() < 1e-9, "{most}: {}", axis_end(most));
    }
}
