//! Samples the memory of a tree while it runs.

use folioswap_peer::Cgroup;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Samples the memory of a cgroup every 10 ms.
pub(super) struct Watch {
    thread: Option<JoinHandle<()>>,
    pub(super) shared: Arc<Watched>,
}

#[derive(Default)]
pub(super) struct Watched {
    stop: AtomicBool,
    pub(super) peak: AtomicU64,
    pub(super) peak_rss: AtomicU64,
    pub(super) samples: AtomicU64,
    pub(super) longest_gap_us: AtomicU64,
}

impl Watch {
    pub(super) fn start(cgroup: &Cgroup) -> Self {
        let shared = Arc::new(Watched::default());
        let watched = shared.clone();
        let reader = cgroup.reader().expect("memory.stat can be read");
        let thread = std::thread::spawn(move || {
            // The watch runs ahead of the watched programs on a busy machine. Without the right to
            // a higher priority it runs at its normal one.
            // SAFETY: setpriority on the calling thread has no memory effects.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -15) };
            let mut last = Instant::now();
            while !watched.stop.load(Relaxed) {
                if let Ok((rss, shmem)) = reader.resident() {
                    watched.peak.fetch_max(rss + shmem, Relaxed);
                    watched.peak_rss.fetch_max(rss, Relaxed);
                    watched.samples.fetch_add(1, Relaxed);
                }
                let now = Instant::now();
                watched.longest_gap_us.fetch_max((now - last).as_micros() as u64, Relaxed);
                last = now;
                std::thread::sleep(Duration::from_millis(10).saturating_sub(now.elapsed()));
            }
        });
        Watch { thread: Some(thread), shared }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
