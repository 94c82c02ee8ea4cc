use super::*;
use std::boxed::Box;

/// A ring in which folios with this many pages each were written back.
fn ring(places: u64, folios: u64, pages: u32) -> Box<Staging> {
    // SAFETY: all-zero is a valid ring.
    let mut ring = unsafe { Box::<Staging>::new_zeroed().assume_init() };
    ring.berth_count = places;
    (ring.pushed, ring.written) = (folios, folios);
    for number in 0..folios {
        let berth = ring.berth_of(number);
        ring.berth_mut(berth).came = ((1u32 << pages) - 1) as u16;
    }
    ring
}

#[test]
fn places_are_given_back_when_they_hold_enough_or_are_many() {
    // Full berths: due at [`RECYCLED_BERTHS`].
    assert_eq!(ring(1024, 15, 16).recycled_together(512), 64);
    assert_eq!(ring(1024, 16, 16).recycled_together(512), 1);
    // Berths of four pages each: due at as many pages.
    assert_eq!(ring(1024, 63, 4).recycled_together(512), 64);
    assert_eq!(ring(1024, 64, 4).recycled_together(512), 1);
    // Berths of one page: due at this many berths, which are an eighth of a small ring.
    assert_eq!(ring(1024, 200, 1).recycled_together(512), 64);
    assert_eq!(ring(256, 200, 1).recycled_together(128), 32);
    // Where hardly any folio may wait, hardly any berth is kept.
    assert_eq!(ring(64, 1, 16).recycled_together(4), 8);
    assert_eq!(ring(64, 2, 16).recycled_together(4), 1);
    assert_eq!(ring(64, 2, 1).recycled_together(4), 8);
}
