//! The value of `--thp`: `SIZE=WORD[,SIZE=WORD]...`, with the words that the kernel takes for each
//! size below `/sys/kernel/mm/transparent_hugepage`.
//!
//! As with the kernel's `thp_anon=`, unnamed sizes are *never* made once any size is named; without
//! the option all sizes are made.

use folioswap_group::{counters::ORDERS, folio_orders::FolioOrders};
use folioswap_supervisor::suggestion;

/// The file of the machine's own setting, for which `inherit` stands.
pub const INHERITED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// The names of the sizes, by order less one.
const SIZES: [&str; ORDERS - 1] = ["8k", "16k", "32k", "64k", "128k", "256k", "512k", "1m", "2m"];
/// The name for all sizes that are not named themselves.
const ALL: &str = "all";

/// When folios of one size are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Always,
    /// According to the machine's own setting when the run begins.
    Inherit,
    /// Where the program asked for huge pages.
    Madvise,
    Never,
}

impl When {
    fn read(word: &str) -> Option<When> {
        Some(match word {
            "always" => When::Always,
            "inherit" => When::Inherit,
            "madvise" => When::Madvise,
            "never" => When::Never,
            _ => return None,
        })
    }
}

/// When folios of each size are made, as the user asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolioOption([When; ORDERS - 1]);

/// Why a value of `--thp` was not understood.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FolioOptionError {
    /// A part is not a size with a word.
    #[error("'{0}' is not SIZE=WORD, e.g. 64k=always,2m=inherit")]
    Form(String),
    /// There is no such size.
    #[error("unknown size '{0}'{meant}; there are 8k, 16k, 32k, 64k, 128k, 256k, 512k, 1m, 2m and all", meant = suggestion::did_you_mean(.0, &SIZES))]
    Size(String),
    /// There is no such word.
    #[error("{size}={word}: unknown word{meant}; there are always, inherit, madvise and never", meant = suggestion::did_you_mean(word, &["always", "inherit", "madvise", "never"]))]
    Word {
        /// The size as given.
        size: String,
        /// The word as given.
        word: String,
    },
    /// A size is given twice.
    #[error("{0} is given twice")]
    Twice(&'static str),
}

/// Reads the value of `--thp`. Sizes may have capital letters (64K), as the kernel writes them.
///
/// # Errors
/// [`FolioOptionError`], whose message says what is allowed.
pub fn parse(value: &str) -> Result<FolioOption, FolioOptionError> {
    let mut of_size: [Option<When>; ORDERS - 1] = [None; ORDERS - 1];
    let mut others = None;
    for part in value.split(',') {
        let (size, word) = part.split_once('=').ok_or_else(|| FolioOptionError::Form(part.to_owned()))?;
        let (chosen, name) = match SIZES.iter().position(|name| name.eq_ignore_ascii_case(size)) {
            Some(index) => (&mut of_size[index], SIZES[index]),
            None if size.eq_ignore_ascii_case(ALL) => (&mut others, ALL),
            None => return Err(FolioOptionError::Size(size.to_owned())),
        };
        let when = When::read(word)
            .ok_or_else(|| FolioOptionError::Word { size: size.to_owned(), word: word.to_owned() })?;
        if chosen.replace(when).is_some() {
            return Err(FolioOptionError::Twice(name));
        }
    }
    Ok(FolioOption(of_size.map(|when| when.or(others).unwrap_or(When::Never))))
}

impl FolioOption {
    /// The sizes that members may make. `inherited` gives the text of the machine's own setting
    /// ([`INHERITED`]); it is called only when it matters. A kernel without that setting makes no
    /// huge pages.
    pub fn orders(&self, inherited: impl FnOnce() -> Option<String>) -> FolioOrders {
        let machine = self.0.contains(&When::Inherit).then(|| {
            let text = inherited().unwrap_or_default();
            folioswap_peer::chosen(&text).and_then(When::read).unwrap_or(When::Never)
        });
        let mut orders = FolioOrders::NONE;
        for (order, &when) in (1..).zip(&self.0) {
            match if when == When::Inherit { machine } else { Some(when) } {
                Some(When::Always) => orders.always |= 1 << order,
                Some(When::Madvise) => orders.madvise |= 1 << order,
                Some(When::Never | When::Inherit) | None => {}
            }
        }
        orders
    }
}

#[cfg(test)]
mod tests;
