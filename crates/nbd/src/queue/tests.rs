use super::*;
use proptest::prelude::*;

const MAX: u64 = 100;

fn writes() -> Writes<usize> {
    Writes { under_way: Vec::new(), waiting: VecDeque::new(), bytes: 0, bytes_max: MAX, ended: false }
}

proptest! {
    /// For writes that come and end in any order: writes under way never overlap and never exceed
    /// the bound, overlapping ones begin in their order, and in the end every write has begun.
    #[test]
    fn order_and_room_are_kept(
        steps in proptest::collection::vec((0..40_u64, 1..12_u64, 0..120_u64, any::<prop::sample::Index>(), any::<bool>()), 1..60)
    ) {
        let mut writes = writes();
        let mut spans: Vec<Span> = Vec::new();
        let mut begun: Vec<usize> = Vec::new();
        let mut running: Vec<usize> = Vec::new();
        let run = |writes: &mut Writes<usize>, running: &mut Vec<usize>, begun: &mut Vec<usize>| {
            while let Some((_, number)) = writes.next() {
                running.push(number);
                begun.push(number);
            }
        };
        for (first, count, bytes, which, end) in steps {
            if end && !running.is_empty() {
                let number = running.swap_remove(which.index(running.len()));
                writes.leave(spans[number]);
                run(&mut writes, &mut running, &mut begun);
            } else {
                spans.push(Span { first, count, bytes });
                let number = spans.len() - 1;
                if let Some(number) = writes.enter(spans[number], number) {
                    running.push(number);
                    begun.push(number);
                }
            }
            for (at, &one) in running.iter().enumerate() {
                prop_assert!(running[at + 1..].iter().all(|&other| !spans[one].overlaps(&spans[other])));
            }
            let bytes: u64 = running.iter().map(|&number| spans[number].bytes).sum();
            prop_assert!(bytes <= MAX || running.iter().filter(|&&number| spans[number].bytes > 0).count() <= 1);
            prop_assert_eq!(bytes, writes.bytes);
        }
        while let Some(number) = running.pop() {
            writes.leave(spans[number]);
            run(&mut writes, &mut running, &mut begun);
        }
        prop_assert_eq!(begun.len(), spans.len());
        for (at, &one) in begun.iter().enumerate() {
            let earlier = |other: &&usize| **other < one && spans[**other].overlaps(&spans[one]);
            prop_assert!(!begun[at + 1..].iter().any(|other| earlier(&other)));
        }
    }
}

#[test]
fn who_waits_is_woken_and_at_the_end_let_go() {
    let queue = WriteQueue::new(MAX);
    let span = Span { first: 3, count: 2, bytes: 10 };
    assert_eq!(queue.enter(span, 1), Some(1));
    assert_eq!(queue.enter(Span { first: 4, count: 1, bytes: 10 }, 2), None);
    assert!(!queue.try_take(Span { first: 0, count: 512, bytes: 0 }), "both overlap");
    assert!(queue.try_take(Span { first: 512, count: 512, bytes: 0 }));
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| (queue.next(), queue.next()));
        queue.leave(span);
        while !queue.lock().waiting.is_empty() {
            std::thread::yield_now();
        }
        queue.end();
        assert_eq!(sender.join().expect("no panic"), (Some(2), None));
    });
}
