//! The last minutes of one group or mount, as high as the screen allows.

use super::{draw::Colours, history::History, row::Row};
use folioswap_supervisor::size;
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::Color,
    widgets::{Paragraph, Sparkline},
};
use std::time::Duration;

/// A chart: its figures, the highest value of its axis where that is fixed, and its name.
struct Chart<'a> {
    values: &'a History,
    most: Option<u64>,
    name: String,
    colour: Color,
}

/// Draws the charge, both directions and the waiting, one above the other.
pub fn draw(frame: &mut Frame<'_>, row: &Row, area: Rect, colours: Colours) {
    let highest = |values: &History| values.last(area.width.into()).into_iter().max().unwrap_or(0);
    let rate = |name: &str, values| format!("{name}, {}/s at most", size::short(highest(values)));
    let charge = format!("charge, {} % of the limit at most", highest(&row.charges));
    let mut charts = vec![
        Chart { values: &row.charges, most: Some(100), name: charge, colour: Color::Green },
        Chart { values: &row.outs, most: None, name: rate("out", &row.outs), colour: Color::Magenta },
        Chart { values: &row.backs, most: None, name: rate("in", &row.backs), colour: Color::Blue },
    ];
    // Mounts do not measure it.
    if row.rates.wait.is_some() {
        let name = format!("waiting, {} % at most", highest(&row.waits));
        charts.push(Chart { values: &row.waits, most: None, name, colour: Color::Yellow });
    }
    let parts = charts.iter().map(|_| Constraint::Fill(1)).chain([Constraint::Length(1)]);
    let areas = Layout::vertical(parts).split(area);
    for (chart, &area) in charts.iter().zip(areas.iter()) {
        chart.draw(frame, area, colours);
    }
    if let Some(&area) = areas.last() {
        frame.render_widget(Paragraph::new(axis(&row.times, area.width.into())), area);
    }
}

impl Chart<'_> {
    fn draw(&self, frame: &mut Frame<'_>, area: Rect, colours: Colours) {
        let [head, line] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
        frame.render_widget(Paragraph::new(format!(" {}", self.name)), head);
        let data = self.values.last(line.width.into());
        let mut chart = Sparkline::default().data(&data).style(colours.style(self.colour));
        if let Some(most) = self.most {
            chart = chart.max(most);
        }
        frame.render_widget(chart, line);
    }
}

/// How long ago the first column with a value was, below it, and `now` at the right.
fn axis(times: &History<Duration>, width: usize) -> String {
    let seconds = times.span(width).as_secs();
    let left = format!("{}:{:02} ago", seconds / 60, seconds % 60);
    let now = " now";
    let indent = width.saturating_sub(times.count()).min(width.saturating_sub(left.len() + now.len()));
    let gap = width.saturating_sub(indent + left.len() + now.len());
    format!("{}{left}{}{now}", " ".repeat(indent), " ".repeat(gap))
}
