use super::*;
use std::boxed::Box;
use std::vec::Vec;

#[test]
fn every_request_arrives_once() {
    // SAFETY: all-zero is a valid value.
    let requests = unsafe { Box::<Requests>::new_zeroed().assume_init() };
    let mut seen = Vec::new();
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            let requests = &requests;
            scope.spawn(move || {
                for n in 0..1000 {
                    while !requests.post(Request::KeepResident, thread * 1000 + n, n) {
                        std::thread::yield_now();
                    }
                }
            });
        }
        while seen.len() < 4000 {
            requests.take(|request, start, end| {
                assert_eq!((request, start % 1000), (Request::KeepResident, end));
                seen.push(start);
            });
        }
    });
    seen.sort_unstable();
    assert_eq!(seen, (0..4000).collect::<Vec<_>>());
}

#[test]
fn a_request_has_arrived_when_two_more_rounds_have_ended() {
    // SAFETY: all-zero is a valid value.
    let requests = unsafe { Box::<Requests>::new_zeroed().assume_init() };
    let mut seen = Vec::new();
    std::thread::scope(|scope| {
        let requests = &requests;
        let arrived = scope.spawn(move || {
            assert!(requests.post(Request::KeepResident, 1, 2));
            let before = requests.rounds();
            while requests.rounds().wrapping_sub(before) < 2 {
                std::thread::yield_now();
            }
            requests.cells.iter().all(|cell| cell.state.load(Acquire) == 0)
        });
        while !arrived.is_finished() {
            requests.take(|_, start, _| seen.push(start));
        }
        assert!(arrived.join().expect("the thread ends"), "the cell is free");
    });
    assert_eq!(seen, [1]);
}
