//! The locks of folios.

use super::*;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Overlapping readers, of which there is always one, let a writer pass.
#[test]
fn readers_without_end_let_a_writer_pass() {
    let (folios, passed) = (Folios::new(512).unwrap(), AtomicBool::new(false));
    let (first, second) = (1, 2);
    let began = Instant::now();
    std::thread::scope(|scope| {
        let (folios, passed) = (&folios, &passed);
        // Each reader holds the folio until the other holds it again, as long as no writer
        // wants it.
        let turn = [AtomicBool::new(false), AtomicBool::new(false)];
        let turn = std::sync::Arc::new(turn);
        for own in [first, second] {
            let turn = turn.clone();
            scope.spawn(move || {
                while !passed.load(SeqCst) && began.elapsed() < Duration::from_secs(10) {
                    folios.share(1);
                    turn[own - 1].store(true, SeqCst);
                    turn[2 - own].store(false, SeqCst);
                    let since = Instant::now();
                    while !turn[2 - own].load(SeqCst) && since.elapsed() < PATIENCE / 2 {
                        std::thread::yield_now();
                    }
                    folios.unshare(1);
                }
            });
        }
        std::thread::sleep(Duration::from_millis(5));
        for _ in 0..20 {
            let since = Instant::now();
            folios.lock(1);
            folios.unlock(1);
            assert!(since.elapsed() < Duration::from_secs(5));
        }
        passed.store(true, SeqCst);
    });
    assert_eq!(folios.of(1).state.load(SeqCst), 0, "no mark stays");
}

/// A reader may join the readers again while a writer waits: it waits a moment, not for ever.
#[test]
fn a_reader_may_come_again_while_a_writer_waits() {
    let folios = Folios::new(512).unwrap();
    folios.share(1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            folios.lock(1);
            folios.unlock(1);
        });
        while folios.of(1).state.load(SeqCst) & EXCLUSIVE_WAITS == 0 {
            std::thread::yield_now();
        }
        assert!(!folios.of(1).try_share(), "it lets the writer pass");
        let since = Instant::now();
        folios.share(1);
        assert!(since.elapsed() >= PATIENCE / 2);
        folios.unshare(1);
        folios.unshare(1);
    });
    assert_eq!(folios.of(1).state.load(SeqCst), 0, "no mark stays");
}
