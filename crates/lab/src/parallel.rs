//! Work spread over the processors that exist.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs `work` on every item, on as many threads as there are processors, and returns the results
/// in the order of the items.
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
mod tests;
