use super::*;

fn maps() -> HeatMaps {
    let map = HeatMap {
        title: "now <&>".to_owned(),
        cells: vec![vec![0, 100], vec![0, 100], vec![5, 100]],
        cells_name: "parts".to_owned(),
        bands: vec![
            ("empty".to_owned(), vec![2.0, 2.0, 1.0, 0.0]),
            ("full".to_owned(), vec![0.0, 0.0, 1.0, 2.0]),
        ],
        bands_most: 2.0,
        bands_name: "all".to_owned(),
    };
    HeatMaps {
        title: "T".to_owned(),
        notes: vec!["a note".to_owned()],
        time: ("steps".to_owned(), 40.0),
        maps: vec![map],
    }
}

#[test]
fn cells_of_one_shade_are_one_rectangle_and_empty_ones_none() {
    let svg = maps().svg();
    let cells: Vec<&str> =
        svg.lines().filter(|line| line.contains("fill-opacity") && !line.contains("stroke")).collect();
    assert_eq!(cells.len(), 2, "{cells:?}");
    // The first row is used from the last of three columns on, by less than a tenth.
    assert!(cells[0].contains("fill-opacity=\"0.1\"") && cells[0].contains("x=\"603.3\""), "{}", cells[0]);
    assert!(
        cells[1].contains("fill-opacity=\"1.0\"") && cells[1].contains("width=\"740.0\""),
        "{}",
        cells[1]
    );
}

#[test]
fn bands_add_up_and_names_are_escaped() {
    let svg = maps().svg();
    assert_eq!(svg.matches("<polygon").count(), 2);
    assert!(svg.contains("now &lt;&amp;&gt;") && svg.contains(">a note<") && svg.contains(">40<"));
    // The upper edge of the last band is straight: both together are always two.
    let last = svg.lines().rfind(|line| line.starts_with("<polygon")).unwrap();
    let heights: Vec<&str> = last
        .split('"')
        .nth(1)
        .unwrap()
        .split(' ')
        .take(3)
        .map(|point| point.split(',').nth(1).unwrap())
        .collect();
    assert!(heights.iter().all(|height| *height == heights[0]), "{heights:?}");
}

#[test]
fn no_moments_are_an_empty_picture() {
    let mut maps = maps();
    maps.maps[0].cells.clear();
    maps.maps[0].bands.clear();
    assert!(maps.svg().ends_with("</svg>\n"));
}
