//! Means, spreads and confidence intervals of a few runs.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Runs of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// Number of runs.
    pub n: usize,
    /// Mean.
    pub mean: f64,
    /// Standard deviation of the runs; 0 for a single one.
    pub deviation: f64,
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
}

impl Summary {
    /// Of at least one value.
    pub fn of(values: &[f64]) -> Summary {
        let n = values.len();
        let mean = values.iter().sum::<f64>() / n.max(1) as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = if n > 1 { (squares / (n - 1) as f64).sqrt() } else { 0.0 };
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Summary { n, mean, deviation, median: median(values), min, max }
    }

    /// Confidence interval of the mean (Student's t); `None` below two runs.
    pub fn interval(&self, confidence: f64) -> Option<(f64, f64)> {
        if self.n < 2 {
            return None;
        }
        let t = StudentsT::new(0.0, 1.0, (self.n - 1) as f64).ok()?.inverse_cdf(0.5 + confidence / 2.0);
        let half = t * self.deviation / (self.n as f64).sqrt();
        Some((self.mean - half, self.mean + half))
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// What an equivalence test says (two one-sided tests at 5 %: the 90 % interval against the margin).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The whole interval lies within the margin on both sides.
    Equivalent,
    /// Not worse than the margin allows, perhaps better.
    NoLoss,
    /// The interval lies wholly below the margin.
    Loss,
    /// The interval is too wide to say.
    Undecided,
}

impl Verdict {
    /// As in a table.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Equivalent => "equivalent",
            Verdict::NoLoss => "no loss",
            Verdict::Loss => "LOSS",
            Verdict::Undecided => "undecided",
        }
    }
}

/// Paired runs, after / before of the same quantity where more is better.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Equivalence {
    /// Ratios after / before: geometric mean in `mean`.
    pub ratio: f64,
    /// 90 % confidence interval of the ratio.
    pub interval: (f64, f64),
    /// Greatest difference that counts as none, as a part of 1.
    pub margin: f64,
    /// What follows.
    pub verdict: Verdict,
}

/// The test over pairs (before, after) of positive figures; `None` below two pairs. Works on logarithms, so that a ratio and its inverse count alike.
pub fn equivalence(pairs: &[(f64, f64)], margin: f64) -> Option<Equivalence> {
    let logarithms: Vec<f64> = pairs.iter().map(|(before, after)| (after / before).ln()).collect();
    let summary = Summary::of(&logarithms);
    let (low, high) = summary.interval(0.90)?;
    let (low, high) = (low.exp(), high.exp());
    let (floor, ceiling) = (1.0 - margin, 1.0 / (1.0 - margin));
    let verdict = if low >= floor && high <= ceiling {
        Verdict::Equivalent
    } else if low >= floor {
        Verdict::NoLoss
    } else if high < floor {
        Verdict::Loss
    } else {
        Verdict::Undecided
    };
    Some(Equivalence { ratio: summary.mean.exp(), interval: (low, high), margin, verdict })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_of_known_values() {
        // t(0.95, 4 degrees) = 2.1318; deviation of 1..=5 = 1.5811; half = 2.1318 x 1.5811 / sqrt(5) = 1.5074
        let summary = Summary::of(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        let (low, high) = summary.interval(0.90).unwrap();
        assert!((low - 1.4926).abs() < 1e-3 && (high - 4.5074).abs() < 1e-3, "{low} {high}");
        assert_eq!(Summary::of(&[2.0]).interval(0.9), None);
    }

    #[test]
    fn the_median_is_the_middle_one() {
        assert_eq!(Summary::of(&[9.0, 1.0, 2.0]).median, 2.0);
        assert_eq!(Summary::of(&[9.0, 1.0, 2.0, 4.0]).median, 3.0);
    }

    #[test]
    fn verdicts() {
        let pairs = |ratios: &[f64]| ratios.iter().map(|ratio| (100.0, 100.0 * ratio)).collect::<Vec<_>>();
        let verdict = |ratios: &[f64]| equivalence(&pairs(ratios), 0.05).unwrap().verdict;
        assert_eq!(verdict(&[1.0, 1.01, 0.99, 1.0]), Verdict::Equivalent);
        assert_eq!(verdict(&[1.2, 1.21, 1.19, 1.2]), Verdict::NoLoss);
        assert_eq!(verdict(&[0.8, 0.81, 0.79, 0.8]), Verdict::Loss);
        assert_eq!(verdict(&[0.5, 1.9, 0.7, 1.4]), Verdict::Undecided);
        assert!(equivalence(&[(1.0, 1.0)], 0.05).is_none());
    }
}
