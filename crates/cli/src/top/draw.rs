//! Puts a view on a screen of any size.

use super::{
    history::History,
    row::{Row, Subject},
    timeline,
    view::{Below, Sort, View},
};
use crate::operate::ps;
use folioswap_supervisor::{
    report::table::{self, Sizes},
    size,
    view::GroupSnapshot,
};
use ratatui::{
    Frame,
    layout::{Alignment, Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Cell, Paragraph, Row as TableRow, Sparkline, Table},
};

/// Whether colours are used; attributes (bold, reversed) always are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colours {
    None,
    Some,
}

impl Colours {
    pub fn style(self, colour: Color) -> Style {
        match self {
            Colours::None => Style::default(),
            Colours::Some => Style::default().fg(colour),
        }
    }
}

/// The cells of the bar that shows the charge.
const BAR: usize = 10;
/// The least lines of the table, with its heading.
const TABLE_MIN: u16 = 4;
/// The lines of the summary: one of parts, one of refaults, three sparklines with their names.
const SUMMARY: u16 = 8;

/// The columns: heading, width, and from which width of the screen on they are shown.
const COLUMNS: [(&str, u16, u16); 12] = [
    ("GROUP", 14, 0),
    ("LIMIT", 7, 0),
    ("CHARGE", 7, 0),
    ("", BAR as u16 + 2, 100),
    ("SWAPPED", 7, 0),
    ("RATIO", 6, 0),
    ("OUT/s", 7, 0),
    ("IN/s", 7, 0),
    ("WAIT%", 6, 0),
    ("PAGER%", 6, 90),
    ("P99 us", 7, 110),
    ("COMMAND", 10, 80),
];

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, view: &mut View, colours: Colours) {
    let area = frame.area();
    let rows = u16::try_from(view.rows.len()).unwrap_or(u16::MAX).saturating_add(1);
    let least = TABLE_MIN.min(rows.max(2));
    let below = match view.below {
        Below::Summary => SUMMARY,
        // Processes and timeline get what the table does not need, and at least half.
        Below::Members | Below::Timeline => area.height.saturating_sub(2 + rows).max(area.height / 2),
    };
    let below = below.min(area.height.saturating_sub(2 + least));
    let [head, table, detail, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(least),
        Constraint::Length(below),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(headline(view, head.width), head);
    draw_table(frame, view, table, colours);
    if let Some(row) = view.chosen() {
        match (view.below, &row.subject) {
            (Below::Summary, _) => summary(frame, row, detail, colours),
            (Below::Timeline, _) => timeline::draw(frame, row, detail, colours),
            (Below::Members, Subject::Group(group)) => members(frame, group, detail),
            (Below::Members, Subject::Mount(_)) => figures(frame, row, detail),
        }
    }
    frame.render_widget(footline(view), foot);
}

fn headline(view: &View, width: u16) -> Paragraph<'static> {
    let plural = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let (ram, free) = (size::short(view.ram), size::short(view.available));
    let mut text =
        format!(" folioswap top  {}  {}", plural(view.groups, "group"), plural(view.mounts, "mount"));
    let right = format!("RAM {ram}  free {free}  {} ", view.clock);
    let gap = usize::from(width).saturating_sub(text.chars().count() + right.chars().count()).max(2);
    text.push_str(&" ".repeat(gap));
    text.push_str(&right);
    Paragraph::new(text).style(Style::default().add_modifier(Modifier::BOLD))
}

fn footline(view: &View) -> Paragraph<'static> {
    let text = match &view.typed {
        Some(typed) => {
            let name = view.chosen().map(Row::name).unwrap_or_default();
            format!(" new limit of {name}: {typed}_   (Enter sets it, Esc does not)")
        }
        None if !view.message.is_empty() => format!(" {}", view.message),
        None => " q quit   s sort   Enter processes   t timeline   m set limit   Up Down choose".to_owned(),
    };
    Paragraph::new(text)
}

fn draw_table(frame: &mut Frame<'_>, view: &mut View, area: Rect, colours: Colours) {
    let shown: Vec<usize> = (0..COLUMNS.len()).filter(|&column| area.width >= COLUMNS[column].2).collect();
    let heading = |column: usize| {
        let (name, ..) = COLUMNS[column];
        let is_sorted = view.sort.heading() == name && view.sort != Sort::Name;
        let style =
            if is_sorted { Style::default().add_modifier(Modifier::UNDERLINED) } else { Style::default() };
        cell(column, name.to_owned(), style)
    };
    let header = TableRow::new(shown.iter().map(|&column| heading(column)).collect::<Vec<_>>())
        .style(Style::default().add_modifier(Modifier::BOLD));
    let rows: Vec<TableRow<'_>> = view
        .rows
        .iter()
        .map(|row| TableRow::new(shown.iter().map(|&column| value(row, column, colours)).collect::<Vec<_>>()))
        .collect();
    let last = COLUMNS.len() - 1;
    let widths = shown.iter().map(|&column| match column {
        column if column == last => Constraint::Min(COLUMNS[column].1),
        column => Constraint::Length(COLUMNS[column].1),
    });
    let table = Table::new(rows, widths)
        .header(header)
        .column_spacing(1)
        .row_highlight_style(Style::default().add_modifier(Modifier::REVERSED));
    frame.render_stateful_widget(table, area, &mut view.table);
}

fn cell(column: usize, text: String, style: Style) -> Cell<'static> {
    let is_text = matches!(COLUMNS[column].0, "GROUP" | "COMMAND" | "");
    let alignment = if is_text { Alignment::Left } else { Alignment::Right };
    Cell::from(Line::from(Span::styled(text, style)).alignment(alignment))
}

fn value(row: &Row, column: usize, colours: Colours) -> Cell<'static> {
    let plain = Style::default();
    let share = row.charge() as f64 / row.limit().max(1) as f64;
    let hot = if share > 0.95 { colours.style(Color::Red) } else { colours.style(Color::Green) };
    let rate = |bytes: f64| size::short(bytes as u64);
    let percent = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
    let (text, style) = match COLUMNS[column].0 {
        "GROUP" => (row.name(), colours.style(Color::Cyan)),
        "LIMIT" => (size::short(row.limit()), plain),
        "CHARGE" => (size::short(row.charge()), plain),
        "" => (bar(share), hot),
        "SWAPPED" => (size::short(row.swapped()), plain),
        "RATIO" => (ps::ratio(row.ratio()), plain),
        "OUT/s" => (rate(row.rates.out), plain),
        "IN/s" => (rate(row.rates.back), plain),
        "WAIT%" => (percent(row.rates.wait), colours.style(Color::Yellow)),
        "PAGER%" => (percent(row.rates.pager), plain),
        "P99 us" => (row.rates.p99_us.map_or_else(|| "-".to_owned(), |us| us.to_string()), plain),
        _ => (row.command(), plain),
    };
    cell(column, text, style)
}

/// A bar of a share: `[#####-----]`.
fn bar(share: f64) -> String {
    let full = ((share * BAR as f64).round() as usize).min(BAR);
    format!("[{}{}]", "#".repeat(full), "-".repeat(BAR - full))
}

fn summary(frame: &mut Frame<'_>, row: &Row, area: Rect, colours: Colours) {
    let [blank, text, first, second, third] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(2),
        Constraint::Length(2),
        Constraint::Length(2),
    ])
    .areas(area);
    let line = match &row.subject {
        Subject::Group(group) => {
            let parts = group.parts;
            format!(
                " {}: resident {}  store {}  staging {}  tables {}  unmanaged {}  refaults {:.0}/s",
                group.name,
                size::short(parts.resident),
                size::short(parts.store),
                size::short(parts.staging),
                size::short(parts.tables),
                size::short(parts.unmanaged),
                row.rates.refaults
            )
        }
        Subject::Mount(mount) => format!(
            " {}: folios {}  store {}  on file {}  tables {}  inodes {}",
            row.name(),
            size::short(mount.get("folios")),
            size::short(mount.get("store")),
            size::short(mount.get("on_file")),
            size::short(mount.get("metadata")),
            mount.get("inodes")
        ),
    };
    frame.render_widget(Paragraph::new(line), text);
    pressure(frame, row, blank);
    let rate = |history: &History| format!("{}/s at most", size::short(history.highest()));
    let charge = format!("charge, {} % at most", row.charges.highest());
    sparkline(frame, first, &charge, &row.charges, Some(100), colours.style(Color::Green));
    sparkline(
        frame,
        second,
        &format!("out, {}", rate(&row.outs)),
        &row.outs,
        None,
        colours.style(Color::Magenta),
    );
    sparkline(
        frame,
        third,
        &format!("in, {}", rate(&row.backs)),
        &row.backs,
        None,
        colours.style(Color::Blue),
    );
}

/// The pressure of a group, in the line above its memory.
fn pressure(frame: &mut Frame<'_>, row: &Row, area: Rect) {
    let Subject::Group(group) = &row.subject else { return };
    let averages = |avg: [u32; 3]| avg.map(ps::percent).join(" ");
    let (some, full) = (averages(group.pressure.some), averages(group.pressure.full));
    let line = format!(" pressure of 10, 60, 300 s: some {some} %  full {full} %");
    frame.render_widget(Paragraph::new(line), area);
}

/// A figure's last minutes, with its name at the left.
fn sparkline(
    frame: &mut Frame<'_>,
    area: Rect,
    name: &str,
    values: &History,
    most: Option<u64>,
    style: Style,
) {
    let [label, line] = Layout::horizontal([Constraint::Length(24), Constraint::Min(8)]).areas(area);
    let name_at = Rect { y: label.bottom().saturating_sub(1), height: label.height.min(1), ..label };
    frame.render_widget(Paragraph::new(format!(" {name}")), name_at);
    let data = values.last(line.width.into());
    let mut chart = Sparkline::default().data(&data).style(style);
    if let Some(most) = most {
        chart = chart.max(most);
    }
    frame.render_widget(chart, line);
}

fn members(frame: &mut Frame<'_>, group: &GroupSnapshot, area: Rect) {
    let mut lines = vec![
        String::new(),
        format!(
            " {:>8} {:<16} {:>1} {:>8} {:>8} {:>8} {:>9} {:>9} {:>9}",
            "PID", "PROGRAM", "S", "CHARGE", "SWAPPED", "STORE", "OUT", "IN", "WAITED s"
        ),
    ];
    lines.extend(group.members.iter().map(|member| {
        let name: String = member.name.chars().take(16).collect();
        format!(
            " {:>8} {:<16} {:>1} {:>8} {:>8} {:>8} {:>9} {:>9} {:>9.1}",
            member.pid,
            name,
            member.state,
            size::short(member.charge_bytes),
            size::short(member.swapped_bytes),
            size::short(member.store_bytes),
            size::short(member.pages_out.saturating_mul(4096)),
            size::short(member.pages_in.saturating_mul(4096)),
            member.wait_ns as f64 / 1e9
        )
    }));
    let devices = table::render(&group.devices, Sizes::Readable);
    let room = usize::from(area.height).saturating_sub(devices.lines().count() + 1);
    if lines.len() > room && room > 3 {
        let hidden = lines.len() - (room - 1);
        lines.truncate(room - 1);
        lines.push(format!(" ... and {hidden} more (`folioswap stats {}`)", group.pid));
    }
    lines.push(String::new());
    lines.extend(devices.lines().map(|line| format!(" {line}")));
    frame.render_widget(Paragraph::new(lines.join("\n")), area);
}

fn figures(frame: &mut Frame<'_>, row: &Row, area: Rect) {
    let Subject::Mount(mount) = &row.subject else { return };
    let mut lines = vec![String::new()];
    for (name, kind, bytes, used, prio) in mount.devices() {
        let bytes = if bytes == 0 { "-".to_owned() } else { size::short(bytes) };
        lines.push(format!(" {name}  {kind}  {} of {bytes}  prio {prio}", size::short(used)));
    }
    lines.push(String::new());
    lines.extend(mount.figures().iter().map(|(name, value)| format!(" {name:<24} {value}")));
    frame.render_widget(Paragraph::new(lines.join("\n")), area);
}
