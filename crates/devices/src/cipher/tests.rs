use super::*;
use proptest::prelude::*;
use xts_mode::{Xts128, get_tweak_default};

fn slot(number: u64) -> FileSlot {
    FileSlot::new(number).unwrap()
}

fn encrypted(cipher: &PageCipher, number: u64, page: &Page) -> Page {
    let mut to = [0; PAGE_SIZE];
    cipher.encrypt(slot(number), page, &mut to);
    to
}

/// The beginning of vector 4 of IEEE Std 1619-2018, annex B. Its data unit is shorter than a page,
/// which changes nothing for the blocks that it has.
#[test]
fn it_is_the_mode_of_the_standard() {
    let mut key = [0; PageCipher::KEY_BYTES];
    key[..BLOCK].copy_from_slice(&0x2718_2818_2845_9045_2353_6028_7471_3526_u128.to_be_bytes());
    key[BLOCK..].copy_from_slice(&0x3141_5926_5358_9793_2384_6264_3383_2795_u128.to_be_bytes());
    let mut page = [0; PAGE_SIZE];
    page.iter_mut().enumerate().for_each(|(index, byte)| *byte = index as u8);
    let out = encrypted(&PageCipher::new(&key), 0, &page);
    assert_eq!(out[..16], 0x27a7_479b_efa1_d476_489f_308c_d4cf_a6e2_u128.to_be_bytes());
    assert_eq!(out[16..32], 0xa96e_4bbe_3208_ff25_287d_d381_9616_e89c_u128.to_be_bytes());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_is_what_another_library_makes(key in any::<[u8; 32]>(), number in 0..1u64 << FileSlot::BITS, seed in any::<u64>()) {
        let mut page = [0; PAGE_SIZE];
        for (index, word) in page.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&(seed.wrapping_mul(index as u64 | 1)).to_le_bytes());
        }
        let cipher = PageCipher::new(&key);
        let mut out = encrypted(&cipher, number, &page);
        let half = |range: core::ops::Range<usize>| {
            let half: [u8; BLOCK] = key[range].try_into().unwrap();
            Aes128::new(&half.into())
        };
        let mut expected = page;
        Xts128::new(half(0..16), half(16..32)).encrypt_sector(&mut expected, get_tweak_default(number.into()));
        prop_assert!(out == expected);
        cipher.decrypt(slot(number), &mut out);
        prop_assert!(out == page);
    }
}

#[test]
fn neither_another_key_nor_another_slot_gives_the_page() {
    let page = [7; PAGE_SIZE];
    let out = encrypted(&PageCipher::new(&[1; 32]), 5, &page);
    for (key, number) in [(2, 5), (1, 6)] {
        let mut other = out;
        PageCipher::new(&[key; 32]).decrypt(slot(number), &mut other);
        assert!(other.iter().filter(|&&byte| byte == 7).count() < PAGE_SIZE / 16, "{key} {number}");
    }
}
