//! The zstd format for one page, and recompression with it. (Miri cannot run a C library.)
#![cfg(not(miri))]

mod common;

use common::data::{PageKind, Rng};
use common::device::{Coders, Fault, PageStore, ZramDevice};
use folioswap_devices::lz4;
use folioswap_devices::zstd::{Decoder, Encoder, Malformed};
use folioswap_devices::{
    Checksum, Codec, LoadError, PAGE_SIZE, Page, Place, Scratch, StoreOptions, StoredLen,
};
use proptest::prelude::*;

/// A page behind which nothing may be written, and the bytes behind it.
#[repr(C)]
struct Guarded {
    page: Page,
    behind: [u8; 64],
}

impl Guarded {
    fn new() -> Box<Self> {
        Box::new(Self { page: [0; PAGE_SIZE], behind: [0xa5; 64] })
    }
}

#[test]
fn every_kind_of_page_comes_back_from_a_used_context() {
    let mut coders = Box::<Coders>::default();
    let mut lens = Vec::new();
    for seed in 0..200 {
        for kind in PageKind::ALL {
            let page = kind.page(seed);
            let Some(frame) = coders.encoder.compress(&page, PAGE_SIZE) else {
                assert!(matches!(kind, PageKind::Incompressible | PageKind::Mixed), "{kind:?}");
                continue;
            };
            let mut out = Guarded::new();
            assert_eq!(coders.decoder.decompress(frame, &mut out.page), Ok(()));
            assert!(out.page == page && out.behind == [0xa5; 64], "{kind:?} {seed}");
            lens.push((kind, frame.len()));
        }
    }
    let longest = |wanted| lens.iter().filter(|(kind, _)| *kind == wanted).map(|(_, len)| *len).max();
    // The frames have no magic number and no checksum.
    assert!(longest(PageKind::Zero) <= Some(16), "{:?}", longest(PageKind::Zero));
    assert!(longest(PageKind::Text) < Some(2000), "{:?}", longest(PageKind::Text));
}

#[test]
fn it_is_smaller_than_lz4_where_letters_are_not_equally_frequent() {
    let (mut encoder, mut table) = (Box::new(Encoder::new()), Box::new(lz4::Table::new()));
    let mut output = [0; lz4::OUTPUT_MAX];
    let (mut lz4_bytes, mut zstd_bytes) = (0, 0);
    for seed in 0..100 {
        let page = PageKind::Text.page(seed);
        lz4_bytes += lz4::compress(&page, &mut output, &mut table, PAGE_SIZE).unwrap();
        zstd_bytes += encoder.compress(&page, PAGE_SIZE).unwrap().len();
    }
    assert!(zstd_bytes * 4 < lz4_bytes * 3, "{zstd_bytes} {lz4_bytes}");
}

#[test]
fn what_is_longer_than_the_limit_is_none() {
    let mut encoder = Box::new(Encoder::new());
    let page = PageKind::Text.page(1);
    let len = encoder.compress(&page, PAGE_SIZE).unwrap().len();
    assert!(encoder.compress(&page, len - 1).is_none());
    assert!(encoder.compress(&page, 0).is_none());
    assert!(encoder.compress(&PageKind::Incompressible.page(1), PAGE_SIZE).is_none());
    // None of that spoils the context.
    assert_eq!(encoder.compress(&page, PAGE_SIZE).map(<[u8]>::len), Some(len));
}

#[test]
fn a_context_that_was_moved_is_made_anew() {
    let (mut first, page) = (Box::<Coders>::default(), PageKind::Text.page(7));
    let frame = first.encoder.compress(&page, PAGE_SIZE).unwrap().to_vec();
    let mut out = [0; PAGE_SIZE];
    first.decoder.decompress(&frame, &mut out).unwrap();
    // The coders move, and their old memory is overwritten.
    let mut second = Box::new(core::mem::take(&mut *first));
    *first = Coders::default();
    assert_eq!(second.encoder.compress(&page, PAGE_SIZE), Some(&frame[..]));
    out.fill(0);
    second.decoder.decompress(&frame, &mut out).unwrap();
    assert!(out == page);
}

#[test]
fn frames_that_are_cut_or_of_other_lengths_are_malformed() {
    let mut coders = Box::<Coders>::default();
    let page = PageKind::Text.page(3);
    let frame = coders.encoder.compress(&page, PAGE_SIZE).unwrap().to_vec();
    let mut out = Guarded::new();
    for len in 0..frame.len() {
        assert_eq!(coders.decoder.decompress(&frame[..len], &mut out.page), Err(Malformed), "{len}");
    }
    let twice = [&frame[..], &frame[..]].concat();
    assert_eq!(coders.decoder.decompress(&twice, &mut out.page), Err(Malformed));
    assert_eq!(coders.decoder.decompress(&frame, &mut out.page), Ok(()));
    assert!(out.page == page && out.behind == [0xa5; 64]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Arbitrary bytes cause no panic and no write behind the page, and the context stays good for
    /// the next frame.
    #[test]
    fn any_bytes_are_malformed_or_a_page(
        noise in proptest::collection::vec(any::<u8>(), 0..300),
        flips in proptest::collection::vec((any::<u16>(), any::<u8>()), 0..6),
        seed in 0..50u64,
    ) {
        // Contexts are large: all cases of a thread share one.
        thread_local!(static CODERS: std::cell::RefCell<Box<Coders>> = std::cell::RefCell::default());
        CODERS.with_borrow_mut(|coders| {
            let page = [PageKind::Text, PageKind::TwoToOne, PageKind::ThreeToOne][seed as usize % 3].page(seed);
            let frame = coders.encoder.compress(&page, PAGE_SIZE).unwrap().to_vec();
            let mut damaged = frame.clone();
            for (at, flip) in flips {
                let at = at as usize % damaged.len();
                damaged[at] ^= flip;
            }
            for input in [&noise, &damaged] {
                // The input stands at the very end of an allocation of its own, so that a sanitizer
                // notices a read behind it.
                let input = input.clone().into_boxed_slice();
                let mut out = Guarded::new();
                let _ = coders.decoder.decompress(&input, &mut out.page);
                prop_assert!(out.behind == [0xa5; 64]);
            }
            let mut out = Guarded::new();
            prop_assert_eq!(coders.decoder.decompress(&frame, &mut out.page), Ok(()));
            prop_assert!(out.page == page);
            Ok(())
        })?;
    }
}

fn store() -> (ZramDevice, Box<Scratch>) {
    (ZramDevice::new(StoreOptions::DEFAULT), Box::default())
}

#[test]
fn recompression_replaces_what_shrinks_by_a_class_and_settles_what_does_not() {
    let (device, mut scratch) = store();
    let (mut zstd, mut settled) = (0, 0);
    for (owner, kind) in (0..700).zip(PageKind::ALL.iter().cycle()) {
        let page = kind.page(owner);
        let before = device.store(&mut scratch, &page, owner).unwrap();
        let after = device.recompress(before, &page, owner);
        let mut out = [0; PAGE_SIZE];
        device.load(after, &mut out).unwrap();
        assert!(out == page, "{kind:?} {owner}");
        match (before, after) {
            (Place::Zram { len: old, .. }, Place::Zram { len, codec: Codec::Zstd, .. }) => {
                assert!(len.bytes() < old.bytes() * 9 / 10, "{kind:?} {} {}", old.bytes(), len.bytes());
                zstd += 1;
            }
            (Place::Zram { handle: old, .. }, Place::Zram { handle, codec: Codec::Lz4Settled, .. }) => {
                assert_eq!(old, handle);
                settled += 1;
            }
            _ => assert_eq!(before, after),
        }
        assert_eq!(device.recompress(after, &page, owner), after);
        device.free(after);
    }
    assert!(zstd >= 100 && settled >= 100, "{zstd} {settled}");
    assert_eq!(device.report().pages, 0);
    device.settle();
}

#[test]
fn a_page_that_was_kept_as_it_is_may_shrink_later() {
    let (device, mut scratch) = store();
    // Random letters have no repetition for LZ4, and six bits of eight for zstd.
    let mut rng = Rng::new(9);
    let page: Page = core::array::from_fn(|_| b'!' + rng.below(64) as u8);
    let before = device.store(&mut scratch, &page, 1).unwrap();
    assert!(matches!(before, Place::Zram { len: StoredLen::UNCOMPRESSED, .. }), "{before:?}");
    assert_eq!(device.zram.mm_stat().huge_pages, 1);
    let after = device.recompress(before, &page, 1);
    assert!(matches!(after, Place::Zram { codec: Codec::Zstd, .. }), "{after:?}");
    assert_eq!(device.zram.mm_stat().huge_pages, 0);
    let mut out = [0; PAGE_SIZE];
    device.load(after, &mut out).unwrap();
    assert!(out == page);
}

#[test]
fn damage_and_another_codec_are_errors() {
    let (device, mut scratch) = store();
    let page = PageKind::Text.page(1);
    let before = device.store(&mut scratch, &page, 1).unwrap();
    let after = device.recompress(before, &page, 1);
    let Place::Zram { handle, len, codec: Codec::Zstd, checksum } = after else { panic!("{after:?}") };
    let mut out = [0; PAGE_SIZE];
    let as_lz4 = Place::Zram { handle, len, codec: Codec::Lz4, checksum };
    assert_eq!(device.load(as_lz4, &mut out), Err(Fault::Load(LoadError::Malformed)));
    device.load(after, &mut out).unwrap();
    assert!(device.damage(after));
    let Err(Fault::Load(LoadError::Corrupt { expected, .. })) = device.load(after, &mut out) else {
        panic!("it is damaged")
    };
    assert_eq!(expected, checksum);
    // With the right checksum of damaged bytes, either the frame reports it or the bytes expand to
    // a page: never a panic.
    let mut decoder = Box::new(Decoder::new());
    let stored = |at| {
        // SAFETY: the object is live and nothing else refers to it.
        unsafe { *device.zram.memory().object(handle).add(8 + at) }
    };
    let bytes: Vec<u8> = (0..len.bytes()).map(stored).collect();
    assert_ne!(Checksum::of(&bytes), checksum);
    let _ = decoder.decompress(&bytes, &mut out);
}
