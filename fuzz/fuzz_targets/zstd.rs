//! zstd of single pages. Any frame is refused or expanded, with the same result by a decoder that
//! has seen other frames before and by a new one. Any page is compressed so that another
//! implementation expands it too. (Of damaged frames the two accept different ones.)
#![no_main]

use folioswap_devices::{PAGE_SIZE, Page, zstd};
use libfuzzer_sys::fuzz_target;
use ruzstd::decoding::FrameDecoder;
use std::cell::RefCell;

/// What stands before each frame where it is not left out.
const MAGIC: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes();

thread_local! {
    static CODEC: RefCell<(Box<zstd::Encoder>, Box<zstd::Decoder>)> = RefCell::default();
}

/// The page that the other implementation finds in a frame that has no magic number.
fn theirs(frame: &[u8]) -> Option<Page> {
    let input: Vec<u8> = MAGIC.iter().chain(frame).copied().collect();
    let mut output = [0; PAGE_SIZE];
    let len = FrameDecoder::new().decode_all(&input, &mut output).ok()?;
    (len == PAGE_SIZE).then_some(output)
}

fuzz_target!(|data: &[u8]| {
    CODEC.with_borrow_mut(|(encoder, decoder)| {
        let (mut page, mut anew) = ([0xaa; PAGE_SIZE], [0x55; PAGE_SIZE]);
        let is_page = decoder.decompress(data, &mut page).is_ok();
        assert_eq!(is_page, Box::<zstd::Decoder>::default().decompress(data, &mut anew).is_ok());
        assert!(!is_page || page == anew);
        if data.is_empty() {
            return;
        }
        // The input is repeated, each time a little changed, so that there are matches.
        let page = core::array::from_fn(|at| data[at % data.len()].wrapping_add((at / data.len() / 3) as u8));
        let frame = encoder.compress(&page, PAGE_SIZE).map(<[u8]>::to_vec);
        if let Some(frame) = frame {
            let mut back = [0x33; PAGE_SIZE];
            assert!(decoder.decompress(&frame, &mut back).is_ok() && back == page);
            assert!(theirs(&frame) == Some(page));
            // A limit is kept. The library may want a few bytes more than it fills in the end.
            for limit in [frame.len() + 64, frame.len(), frame.len() - 1] {
                if let Some(limited) = encoder.compress(&page, limit) {
                    assert!(limited.len() <= limit && theirs(limited) == Some(page));
                }
            }
            // A part of a frame is no frame.
            assert!(decoder.decompress(&frame[..frame.len() - 1], &mut back).is_err());
        }
    });
});
