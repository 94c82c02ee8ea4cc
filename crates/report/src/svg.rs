//! Charts for a page of HTML: SVG without colours of its own, so that the page's style sheet can
//! have a light and a dark one. Classes are `c1` to `c6` for series, `axis`, `grid` and `mark`.

use std::fmt::Write;

/// Width of every chart, in units of SVG.
const WIDTH: f64 = 960.0;
/// What is left for the numbers at the left, and for the names at the right.
const LEFT: f64 = 64.0;
const RIGHT: f64 = 170.0;
/// What is left below for the numbers of the other axis.
const BELOW: f64 = 24.0;
/// Height of a row of a Gantt chart.
const ROW: f64 = 16.0;

/// One series of values.
#[derive(Clone, Debug)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// The values, as many as there are times.
    pub values: Vec<f64>,
}

/// How series stand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrangement {
    /// Each is a line.
    Lines,
    /// Each is an area on top of the ones before.
    Stacked,
}

/// Values over time.
#[derive(Clone, Debug)]
pub struct TimeChart<'a> {
    /// Seconds since the start, rising.
    pub times: &'a [f64],
    /// The series, at most six.
    pub series: Vec<Series>,
    /// How they stand to each other.
    pub arrangement: Arrangement,
    /// The unit of the values.
    pub unit: &'a str,
    /// A value to be marked by a line, with its name.
    pub mark: Option<(f64, String)>,
}

/// Bars of one series.
#[derive(Clone, Debug)]
pub struct BarChart<'a> {
    /// For each bar the name below it, and its value.
    pub bars: Vec<(String, f64)>,
    /// The unit of the values.
    pub unit: &'a str,
}

/// One row of a Gantt chart.
#[derive(Clone, Debug)]
pub struct Span {
    /// The name.
    pub name: String,
    /// Seconds since the start at which it begins.
    pub began: f64,
    /// The same for its end.
    pub ended: f64,
}

/// A falling or rising line through points.
#[derive(Clone, Debug)]
pub struct CurveChart<'a> {
    /// The points, by rising x.
    pub points: Vec<(f64, f64)>,
    /// The name of the x axis.
    pub x: &'a str,
    /// The name of the y axis.
    pub y: &'a str,
    /// An x to be marked by a line, with its name.
    pub mark: Option<(f64, String)>,
}

/// Text for XML.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' => escaped.push('\n'),
            // XML has no such characters.
            control if control.is_control() => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

/// A number that is at least `most`, with few digits: the end of an axis.
fn axis_end(most: f64) -> f64 {
    if !(most > 0.0 && most.is_finite()) {
        return 1.0;
    }
    let digit = 10_f64.powf(most.log10().floor());
    [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0]
        .map(|step| step * digit)
        .into_iter()
        .find(|end| *end >= most * 0.999)
        .unwrap_or(most)
}

/// A number on an axis.
fn label(value: f64) -> String {
    match value {
        _ if value == 0.0 => "0".to_owned(),
        _ if value.abs() >= 1e6 => format!("{:.1}M", value / 1e6),
        _ if value.abs() >= 1e4 => format!("{:.0}k", value / 1e3),
        _ if value.abs() >= 10.0 || value.fract() == 0.0 => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}

/// The drawing area of one chart.
struct Area {
    svg: String,
    height: f64,
    x_end: f64,
    y_end: f64,
}

impl Area {
    fn new(name: &str, height: f64, x_end: f64, y_end: f64) -> Area {
        let whole = height + BELOW + 14.0;
        let svg =
            format!("<svg viewBox=\"0 0 {WIDTH} {whole}\" role=\"img\" aria-label=\"{}\">\n", escaped(name));
        Area { svg, height, x_end: axis_end(x_end.max(1e-9)).min(x_end.max(1e-9)), y_end }
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * (value / self.x_end).clamp(0.0, 1.0)
    }

    fn y(&self, value: f64) -> f64 {
        10.0 + self.height * (1.0 - (value / self.y_end).clamp(0.0, 1.0))
    }

    fn put(&mut self, arguments: std::fmt::Arguments<'_>) {
        self.svg.write_fmt(arguments).expect("a String takes everything");
        self.svg.push('\n');
    }

    /// Numbers and lines of the y axis.
    fn y_axis(&mut self, unit: &str) {
        for step in 0..=4 {
            let value = self.y_end * f64::from(step) / 4.0;
            let (y, text) = (self.y(value), label(value));
            let (right, at) = (WIDTH - RIGHT, LEFT - 6.0);
            self.put(format_args!(
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
            ));
            self.put(format_args!(
                "<text class=\"axis\" text-anchor=\"end\" x=\"{at}\" y=\"{:.1}\">{text}</text>",
                y + 4.0
            ));
        }
        let (x, y) = (WIDTH - RIGHT + 12.0, self.height + 10.0);
        self.put(format_args!("<text class=\"axis\" x=\"{x}\" y=\"{y}\">{}</text>", escaped(unit)));
    }

    /// Numbers of the x axis.
    fn x_axis(&mut self, unit: &str) {
        for step in 0..=5 {
            let value = self.x_end * f64::from(step) / 5.0;
            let (x, y) = (self.x(value), self.height + BELOW + 4.0);
            let text = label(value);
            self.put(format_args!(
                "<text class=\"axis\" text-anchor=\"middle\" x=\"{x:.1}\" y=\"{y}\">{text} {}</text>",
                escaped(unit)
            ));
        }
    }

    fn legend(&mut self, number: usize, name: &str) {
        let (x, y) = (WIDTH - RIGHT + 12.0, 12.0 + 18.0 * number as f64);
        let class = number % 6 + 1;
        self.put(format_args!("<rect class=\"c{class}\" x=\"{x}\" y=\"{y}\" width=\"11\" height=\"11\"/>"));
        self.put(format_args!(
            "<text class=\"axis\" x=\"{}\" y=\"{}\">{}</text>",
            x + 16.0,
            y + 10.0,
            escaped(name)
        ));
    }

    fn done(mut self) -> String {
        self.svg.push_str("</svg>\n");
        self.svg
    }
}

impl TimeChart<'_> {
    /// Draws the chart.
    pub fn svg(&self, name: &str) -> String {
        let count = self.times.len();
        let tops = (0..count).map(|at| {
            let values = self.series.iter().map(|series| series.values[at]);
            match self.arrangement {
                Arrangement::Stacked => values.sum::<f64>(),
                Arrangement::Lines => values.fold(0.0, f64::max),
            }
        });
        let most = tops.fold(self.mark.as_ref().map_or(0.0, |mark| mark.0), f64::max);
        let mut area = Area::new(name, 200.0, self.times.last().copied().unwrap_or(1.0), axis_end(most));
        area.y_axis(self.unit);
        area.x_axis("s");
        let mut base = vec![0.0; count];
        for (number, series) in self.series.iter().enumerate() {
            let class = number % 6 + 1;
            let mut points = String::new();
            let mut put = |area: &Area, time: f64, value: f64| {
                write!(points, "{:.1},{:.1} ", area.x(time), area.y(value))
                    .expect("a String takes everything");
            };
            match self.arrangement {
                Arrangement::Lines => {
                    self.times.iter().zip(&series.values).for_each(|(&time, &value)| put(&area, time, value));
                    area.put(format_args!("<polyline class=\"l{class}\" points=\"{}\"/>", points.trim_end()));
                }
                Arrangement::Stacked => {
                    let top: Vec<f64> = base.iter().zip(&series.values).map(|(a, b)| a + b).collect();
                    self.times.iter().zip(&top).for_each(|(&time, &value)| put(&area, time, value));
                    self.times.iter().zip(&base).rev().for_each(|(&time, &value)| put(&area, time, value));
                    area.put(format_args!("<polygon class=\"c{class}\" points=\"{}\"/>", points.trim_end()));
                    base = top;
                }
            }
            area.legend(number, &series.name);
        }
        if let Some((value, name)) = &self.mark {
            let (y, right) = (area.y(*value), WIDTH - RIGHT);
            area.put(format_args!(
                "<line class=\"mark\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
            ));
            // Its name stands below those of the series.
            let (x, y) = (right + 12.0, 22.0 + 18.0 * self.series.len() as f64);
            area.put(format_args!("<text class=\"axis\" x=\"{x}\" y=\"{y}\">- - {}</text>", escaped(name)));
        }
        area.done()
    }
}

impl BarChart<'_> {
    /// Draws the chart.
    pub fn svg(&self, name: &str) -> String {
        let most = self.bars.iter().map(|bar| bar.1).fold(0.0, f64::max);
        let mut area = Area::new(name, 160.0, self.bars.len().max(1) as f64, axis_end(most));
        area.y_axis(self.unit);
        // Names that would overlap are left out.
        let each = self.bars.len().div_ceil(12).max(1);
        for (number, (name, value)) in self.bars.iter().enumerate() {
            let (left, right) = (area.x(number as f64 + 0.1), area.x(number as f64 + 0.9));
            let (top, bottom) = (area.y(*value), area.y(0.0));
            let (width, height) = (right - left, bottom - top);
            area.put(format_args!(
                "<rect class=\"c1\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"><title>{}: {value}</title></rect>",
                escaped(name)
            ));
            if number % each == 0 {
                let (x, y) = ((left + right) / 2.0, area.height + BELOW + 4.0);
                area.put(format_args!(
                    "<text class=\"axis\" text-anchor=\"middle\" x=\"{x:.1}\" y=\"{y}\">{}</text>",
                    escaped(name)
                ));
            }
        }
        area.done()
    }
}

impl CurveChart<'_> {
    /// Draws the chart.
    pub fn svg(&self, name: &str) -> String {
        let x_end = self.points.iter().map(|point| point.0).fold(1e-9, f64::max);
        let most = self.points.iter().map(|point| point.1).fold(0.0, f64::max);
        let mut area = Area::new(name, 200.0, x_end, axis_end(most));
        area.y_axis(self.y);
        area.x_axis(self.x);
        let points: Vec<String> =
            self.points.iter().map(|&(x, y)| format!("{:.1},{:.1}", area.x(x), area.y(y))).collect();
        area.put(format_args!("<polyline class=\"l1\" points=\"{}\"/>", points.join(" ")));
        for &(x, y) in &self.points {
            let (at_x, at_y) = (area.x(x), area.y(y));
            area.put(format_args!("<circle class=\"c1\" cx=\"{at_x:.1}\" cy=\"{at_y:.1}\" r=\"3\"><title>{x:.0}: {y:.0}</title></circle>"));
        }
        if let Some((value, name)) = &self.mark {
            let (x, bottom) = (area.x(*value), area.y(0.0));
            area.put(format_args!(
                "<line class=\"mark\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"10\" y2=\"{bottom:.1}\"/>"
            ));
            area.put(format_args!(
                "<text class=\"axis\" x=\"{:.1}\" y=\"20\">{}</text>",
                x + 6.0,
                escaped(name)
            ));
        }
        area.done()
    }
}

/// Draws a Gantt chart of spans within `end` seconds.
pub fn gantt(name: &str, spans: &[Span], end: f64) -> String {
    let height = ROW * spans.len().max(1) as f64;
    let mut area = Area::new(name, height, end, 1.0);
    for (number, span) in spans.iter().enumerate() {
        let y = 10.0 + ROW * number as f64;
        let (left, right) = (area.x(span.began), area.x(span.ended));
        let (width, class, name) = ((right - left).max(1.5), number % 6 + 1, escaped(&span.name));
        let (began, ended) = (span.began, span.ended);
        area.put(format_args!(
            "<rect class=\"c{class}\" x=\"{left:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{:.1}\"><title>{name}: {began:.2} to {ended:.2} s</title></rect>",
            ROW - 4.0
        ));
        let (x, y) = (WIDTH - RIGHT + 12.0, y + 10.0);
        area.put(format_args!("<text class=\"axis\" x=\"{x}\" y=\"{y:.1}\">{name}</text>"));
    }
    area.x_axis("s");
    area.done()
}

#[cfg(test)]
mod tests;
