//! Progress on standard error.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Whether to show progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// On standard error: a bar on a terminal, else a line per run.
    Yes,
    /// Not at all, as in tests.
    No,
}

/// The progress of a known number of runs. Dropping it clears the bar.
pub struct Progress {
    bar: ProgressBar,
    lines: bool,
    done: AtomicUsize,
    total: usize,
}

impl Progress {
    /// Shows progress towards `total` runs.
    pub fn new(show: Show, total: usize) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        let target = match show {
            Show::Yes if terminal => ProgressDrawTarget::stderr(),
            _ => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(total as u64), target);
        let style = ProgressStyle::with_template("{elapsed_precise} {wide_bar} {pos}/{len} {msg}");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        Progress { bar, lines: show == Show::Yes && !terminal, done: AtomicUsize::new(0), total }
    }

    /// Counts `more` units as done, without printing a line for each.
    pub fn advance(&self, more: u32) {
        self.done.fetch_add(more as usize, Ordering::Relaxed);
        self.bar.inc(u64::from(more));
    }

    /// Counts one run as done and shows its name.
    pub fn done(&self, name: &str) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        self.bar.set_message(name.to_owned());
        self.bar.inc(1);
        if self.lines {
            eprintln!("{done}/{} {name}", self.total);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
