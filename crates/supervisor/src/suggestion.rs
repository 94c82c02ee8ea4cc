//! What a mistyped word was probably meant to be.

/// How alike two words must be, from 0 to 1: that of clap for its options.
const ALIKE: f64 = 0.7;

/// The known word that is most like this one, as the end of a message: `; did you mean 'file'?`.
/// Empty when none is like it.
pub fn did_you_mean(word: &str, known: &[&str]) -> String {
    let word = word.to_ascii_lowercase();
    let likeness = |candidate: &&str| strsim::jaro_winkler(&word, candidate);
    let best =
        known.iter().map(|candidate| (likeness(candidate), candidate)).max_by(|a, b| a.0.total_cmp(&b.0));
    match best {
        Some((alike, candidate)) if alike > ALIKE => format!("; did you mean '{candidate}'?"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests;
