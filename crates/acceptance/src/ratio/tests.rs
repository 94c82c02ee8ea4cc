use super::*;

#[test]
fn the_ratios_are_what_their_names_say() {
    for block in [4096, 65536] {
        for (kind, wanted) in [(Kind::Two, 2.0), (Kind::Three, 3.0), (Kind::Incompressible, 1.0)] {
            let ratio = lz4_ratio(kind, block, 1024);
            assert!((ratio / wanted - 1.0).abs() < 0.08, "{kind:?} in {block}: {ratio}");
        }
    }
}
