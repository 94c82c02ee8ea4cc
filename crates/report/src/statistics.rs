//! Means, spreads and confidence intervals of a few runs, and a test for equivalence.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// The runs of one kind, summarised.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// Number of runs.
    pub n: usize,
    /// Mean.
    pub mean: f64,
    /// Standard deviation of the runs; 0 for a single one.
    pub deviation: f64,
    /// Median, as [`median`] has it; 0 without runs.
    pub median: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
}

impl Summary {
    /// Summarises at least one value.
    pub fn of(values: &[f64]) -> Summary {
        let n = values.len();
        let mean = values.iter().sum::<f64>() / n.max(1) as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = if n > 1 { (squares / (n - 1) as f64).sqrt() } else { 0.0 };
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Summary { n, mean, deviation, median: median(values).unwrap_or(0.0), min, max }
    }

    /// Computes the confidence interval of the mean (Student's t); `None` below two runs.
    pub fn interval(&self, confidence: f64) -> Option<(f64, f64)> {
        if self.n < 2 {
            return None;
        }
        let t = StudentsT::new(0.0, 1.0, (self.n - 1) as f64).ok()?.inverse_cdf(0.5 + confidence / 2.0);
        let half = t * self.deviation / (self.n as f64).sqrt();
        Some((self.mean - half, self.mean + half))
    }
}

/// The middle value, or the mean of the two in the middle; `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[n / 2]),
        n => Some((sorted[n / 2 - 1] + sorted[n / 2]) / 2.0),
    }
}

/// The outcome of an equivalence test: two one-sided tests at 5 %, that is, the 90 % interval
/// against the margin.
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
    /// The verdict's name in a table.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Equivalent => "equivalent",
            Verdict::NoLoss => "no loss",
            Verdict::Loss => "LOSS",
            Verdict::Undecided => "undecided",
        }
    }
}

/// Paired runs: after / before of the same quantity, of which more is better.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Equivalence {
    /// Geometric mean of the ratios after / before.
    pub ratio: f64,
    /// 90 % confidence interval of the ratio.
    pub interval: (f64, f64),
    /// Greatest difference that counts as none, as a part of 1.
    pub margin: f64,
    /// The conclusion.
    pub verdict: Verdict,
}

/// Tests pairs (before, after) of positive figures for equivalence; `None` below two pairs. The
/// test works on logarithms, so that a ratio and its inverse count alike.
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
mod tests;
