//! Progress on standard error, and work spread over the processors that exist.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Whether to show progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// On standard error: a bar on a terminal, else a line per run.
    Yes,
    /// Nothing (tests).
    No,
}

/// The progress of an experiment of a known number of runs.
pub struct Progress {
    bar: ProgressBar,
    lines: bool,
    done: AtomicUsize,
    all: usize,
}

impl Progress {
    /// For `all` runs.
    pub fn new(show: Show, all: usize) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        let target = match show {
            Show::Yes if terminal => ProgressDrawTarget::stderr(),
            _ => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(all as u64), target);
        let style = ProgressStyle::with_template("{elapsed_precise} {wide_bar} {pos}/{len} {msg}");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        Progress { bar, lines: show == Show::Yes && !terminal, done: AtomicUsize::new(0), all }
    }

    /// `more` were done, without a line for each.
    pub fn advance(&self, more: u32) {
        self.done.fetch_add(more as usize, Ordering::Relaxed);
        self.bar.inc(u64::from(more));
    }

    /// A run ended.
    pub fn done(&self, what: &str) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        self.bar.set_message(what.to_owned());
        self.bar.inc(1);
        if self.lines {
            eprintln!("{done}/{} {what}", self.all);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Runs `work` on every item, on as many threads as there are processors; results in the order of the items.
pub fn parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(items.len().max(1));
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<R>>> = items.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else { break };
                    let result = work(item);
                    *results[index].lock().expect("no work panics while it holds the lock") = Some(result);
                }
            });
        }
    });
    let inner =
        |result: Mutex<Option<R>>| result.into_inner().ok().flatten().expect("every item was worked on");
    results.into_iter().map(inner).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_item_once_and_in_order() {
        let items: Vec<u64> = (0..1000).collect();
        let results = super::parallel(&items, |item| item * 2);
        assert!(results.iter().enumerate().all(|(index, result)| *result == index as u64 * 2));
        assert!(super::parallel(&Vec::<u64>::new(), |item| *item).is_empty());
    }
}
