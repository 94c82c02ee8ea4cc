use super::*;

const LIMIT: u64 = 64 << 20;

/// Looks once a second; each second so many pages came back, and so many milliseconds were waited.
fn seconds(watch: &mut Thrashing, seconds: impl Iterator<Item = (u64, u64)>) -> Vec<u64> {
    let start = Instant::now();
    let mut sums = Sums { refaults: 0, waited_ns: 0 };
    let mut said = Vec::new();
    for (second, (pages, waited_ms)) in seconds.enumerate() {
        sums = Sums { refaults: sums.refaults + pages, waited_ns: sums.waited_ns + waited_ms * 1_000_000 };
        let now = start + Duration::from_secs(second as u64);
        if watch.is_due(now) && watch.look(now, sums, LIMIT) != Verdict::Fine {
            said.push(second as u64);
        }
    }
    said
}

#[test]
fn ten_bad_seconds_are_said_once() {
    assert_eq!(seconds(&mut Thrashing::default(), (0..60).map(|_| (5000, 800))), [10]);
}

#[test]
fn one_good_second_begins_again() {
    let of = |second| if second == 7 { (5000, 100) } else { (5000, 800) };
    assert_eq!(seconds(&mut Thrashing::default(), (0..60).map(of)), [17]);
}

#[test]
fn waiting_without_pages_and_pages_without_waiting_are_fine() {
    assert_eq!(seconds(&mut Thrashing::default(), (0..60).map(|_| (100, 900))), [0; 0]);
    assert_eq!(seconds(&mut Thrashing::default(), (0..60).map(|_| (50_000, 200))), [0; 0]);
}

#[test]
fn the_line_has_the_figures_of_the_window() {
    let (mut watch, start) = (Thrashing::default(), Instant::now());
    let verdicts: Vec<_> = (0..=10)
        .map(|second| {
            let sums = Sums { refaults: second * 3000, waited_ns: second * 1_600_000_000 };
            watch.look(start + Duration::from_secs(second), sums, LIMIT)
        })
        .collect();
    assert_eq!(verdicts[10], Verdict::Thrashes { pages: 30_000, waited_percent: 160 });
}
