use super::*;

/// The early exit: in an incompressible page ever fewer positions are examined, an eighth of them
/// in all.
#[test]
fn an_incompressible_page_is_given_up_early() {
    let mut state = 1u64;
    for _ in 0..100 {
        let page: Page = core::array::from_fn(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        });
        let (mut table, mut output) = (Table::new(), [0; OUTPUT_MAX]);
        assert_eq!(compress(&page, &mut output, &mut table, PAGE_SIZE - 1), None);
        let looked = table.noted();
        assert!((100..PAGE_SIZE / 8).contains(&looked), "{looked} places");
    }
}
