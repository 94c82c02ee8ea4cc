//! What the user sees and has chosen. It changes by readings and by keys, and knows no terminal.

use super::{reading::Reading, row::Row};
use folioswap_supervisor::size;
use ratatui::{
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
    widgets::TableState,
};
use std::{path::PathBuf, time::Instant};

/// What a row is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// A group, by the process id of its supervisor.
    Group(u32),
    /// A mount, by its directory.
    Mount(PathBuf),
}

/// The column by which rows are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// The name; mounts after groups.
    #[default]
    Name,
    Charge,
    Swapped,
    In,
    Out,
    Wait,
}

impl Sort {
    const ALL: [Sort; 6] = [Sort::Name, Sort::Charge, Sort::Swapped, Sort::In, Sort::Out, Sort::Wait];

    fn next(self) -> Self {
        let index = Sort::ALL.iter().position(|&sort| sort == self).unwrap_or(0);
        Sort::ALL[(index + 1) % Sort::ALL.len()]
    }

    /// The heading of its column.
    pub const fn heading(self) -> &'static str {
        match self {
            Sort::Name => "GROUP",
            Sort::Charge => "CHARGE",
            Sort::Swapped => "SWAPPED",
            Sort::In => "IN/s",
            Sort::Out => "OUT/s",
            Sort::Wait => "WAIT%",
        }
    }
}

/// What is below the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Below {
    /// The chosen one's memory and its last minutes.
    #[default]
    Summary,
    /// Its processes and devices.
    Members,
    /// Its last minutes, large.
    Timeline,
}

/// What a key asks for beyond the view.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    None,
    Quit,
    /// Another limit, in bytes.
    SetLimit(Key, u64),
}

/// What the user sees.
#[derive(Default)]
pub struct View {
    pub rows: Vec<Row>,
    pub groups: usize,
    pub mounts: usize,
    pub clock: String,
    pub ram: u64,
    pub available: u64,
    pub sort: Sort,
    pub below: Below,
    /// The size that the user is typing.
    pub typed: Option<String>,
    /// The last message.
    pub message: String,
    /// The chosen row and the scrolled part of the table.
    pub table: TableState,
    chosen: Option<Key>,
    read_at: Option<Instant>,
}

impl View {
    /// Takes a reading.
    pub fn take(&mut self, reading: Reading) {
        let time = self.read_at.map(|before| reading.at.duration_since(before)).unwrap_or_default();
        self.read_at = Some(reading.at);
        (self.groups, self.mounts) = (reading.groups.len(), reading.mounts.len());
        (self.clock, self.ram, self.available) = (reading.clock, reading.ram, reading.available);
        let before = std::mem::take(&mut self.rows);
        let rows =
            reading.groups.into_iter().map(Row::group).chain(reading.mounts.into_iter().map(Row::mount));
        self.rows = rows
            .map(|row| {
                let same = before.iter().find(|before| before.key == row.key);
                row.continued(same, time)
            })
            .collect();
        self.arrange();
    }

    /// Shows a message until the next key.
    pub fn say(&mut self, message: String) {
        self.message = message;
    }

    /// The chosen row.
    pub fn chosen(&self) -> Option<&Row> {
        self.rows.get(self.table.selected()?)
    }

    /// Sorts the rows; the chosen one stays chosen, wherever it goes.
    fn arrange(&mut self) {
        let figure = |row: &Row| match self.sort {
            Sort::Name => 0.0,
            Sort::Charge => row.charge() as f64,
            Sort::Swapped => row.swapped() as f64,
            Sort::In => row.rates.back,
            Sort::Out => row.rates.out,
            Sort::Wait => row.rates.wait.unwrap_or(0.0),
        };
        let place = |row: &Row| (matches!(row.key, Key::Mount(_)), row.name());
        self.rows.sort_by(|one, other| {
            figure(other).total_cmp(&figure(one)).then_with(|| place(one).cmp(&place(other)))
        });
        let at = self.rows.iter().position(|row| Some(&row.key) == self.chosen.as_ref());
        let last = self.rows.len().checked_sub(1);
        let fallback = last.map(|last| self.table.selected().unwrap_or(0).min(last));
        self.choose(at.or(fallback));
    }

    fn choose(&mut self, index: Option<usize>) {
        self.table.select(index);
        self.chosen = index.and_then(|index| self.rows.get(index)).map(|row| row.key.clone());
    }

    /// Moves the choice by so many rows, as far as there are some.
    fn step(&mut self, by: isize) {
        let Some(last) = self.rows.len().checked_sub(1) else { return };
        let now = self.table.selected().unwrap_or(0);
        self.choose(Some(now.saturating_add_signed(by).min(last)));
    }

    /// Shows this below the table, or the summary where it was shown already.
    fn toggle(&mut self, wanted: Below) {
        self.below = if self.below == wanted { Below::Summary } else { wanted };
    }

    /// Takes a key.
    pub fn key(&mut self, key: KeyEvent) -> Action {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Action::Quit;
        }
        if self.typed.is_some() {
            return self.key_of_prompt(key.code);
        }
        self.message.clear();
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Action::Quit,
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::PageUp => self.step(-10),
            KeyCode::PageDown => self.step(10),
            KeyCode::Home => self.step(isize::MIN),
            KeyCode::End => self.step(isize::MAX),
            KeyCode::Enter => self.toggle(Below::Members),
            KeyCode::Char('t') => self.toggle(Below::Timeline),
            KeyCode::Char('s') => {
                self.sort = self.sort.next();
                self.arrange();
            }
            KeyCode::Char('m') if self.chosen.is_some() => self.typed = Some(String::new()),
            _ => {}
        }
        Action::None
    }

    fn key_of_prompt(&mut self, code: KeyCode) -> Action {
        let Some(typed) = &mut self.typed else { return Action::None };
        match code {
            KeyCode::Esc => self.typed = None,
            KeyCode::Backspace => drop(typed.pop()),
            KeyCode::Char(c) if typed.len() < 16 && (c.is_ascii_alphanumeric() || c == '.') => typed.push(c),
            KeyCode::Enter => match (size::parse_limit(typed), self.chosen.clone()) {
                (Ok(bytes), Some(key)) => {
                    self.message = format!("setting the limit to {} ...", size::short(bytes));
                    self.typed = None;
                    return Action::SetLimit(key, bytes);
                }
                (Err(error), _) => {
                    self.message = format!("{typed}: {error}");
                    self.typed = None;
                }
                (Ok(_), None) => self.typed = None,
            },
            _ => {}
        }
        Action::None
    }
}
