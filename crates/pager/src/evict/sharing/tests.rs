use super::*;
use crate::kernel::uffd::Watch;
use crate::test_memory::{map, watching_engine};
use crate::units::PAGE;

/// A piece of which these pages were only read, which others map too (the zero page), and these
/// were written to, which are the process's own.
fn touched(read: u16, written: u16) -> usize {
    let start = map(2 * PIECE).next_multiple_of(PIECE);
    for page in 0..PIECE_PAGES {
        let place = (start + page * PAGE) as *mut u8;
        // SAFETY: mapped by the test.
        unsafe {
            if read >> page & 1 != 0 {
                assert_eq!(place.read_volatile(), 0);
            }
            if written >> page & 1 != 0 {
                place.write_volatile(1);
            }
        }
    }
    start
}

/// Pages that were read are protected, and nothing else; and only a write to those makes a page.
#[test]
fn what_was_read_before_its_registration_is_protected() {
    let Some(engine) = watching_engine() else { return };
    let (read, written) = (0x0f0f, 0x00f0);
    let start = touched(read, written);
    engine.userfault().register(start, PIECE, Watch::Program).unwrap();
    engine.protect_zero_pages(start, start + PIECE);
    let now = engine.pages_now(PageAddr::containing(start), PIECE_PAGES);
    assert_eq!((now.present, now.protected, now.exclusive), (read | written, read, written));
    assert!(
        engine.is_shared(PageAddr::containing(start))
            && !engine.is_shared(PageAddr::containing(start + 4 * PAGE))
    );
    assert_eq!(
        engine.cost_of_own_pages(start + 2 * PAGE, start + 6 * PAGE),
        OwnPages { zero: 2 * PAGE, shared: 2 * PAGE }
    );
}

/// Some time after a fork the process's own pages are left alone, and before one nothing is.
#[test]
fn what_is_this_process_s_own_is_protected_only_before_a_fork() {
    let Some(engine) = watching_engine() else { return };
    let (read, written) = (0x5005, 0x0ff0);
    let start = touched(read, written);
    engine.register_pieces(start, start + PIECE);
    let protected = || engine.pages_now(PageAddr::containing(start), PIECE_PAGES).protected;
    engine.protect_registered(ToProtect::Shared);
    assert_eq!(protected(), read);
    engine.protect_registered(ToProtect::All);
    assert_eq!(protected(), read | written);
}
