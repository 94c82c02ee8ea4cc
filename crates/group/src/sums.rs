//! Sums of figures that members publish. A wrong figure may be any number, so sums saturate.

/// Adds up figures; the sum is at most `u64::MAX`.
pub fn saturating_sum(figures: impl IntoIterator<Item = u64>) -> u64 {
    figures.into_iter().fold(0, u64::saturating_add)
}
