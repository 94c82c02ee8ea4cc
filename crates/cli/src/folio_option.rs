//! The value of `--thp`: `SIZE=WORD[,SIZE=WORD]...`, with the words that the kernel takes for each size below
//! `/sys/kernel/mm/transparent_hugepage`.
//!
//! As with the kernel's `thp_anon=`, sizes that are not named are *never* made once any is; without the option all are.

use folioswap_group::{counters::ORDERS, folio_orders::FolioOrders};

/// Where the kernel says what `inherit` stands for.
pub const INHERITED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Names of the sizes, by order less one.
const SIZES: [&str; ORDERS - 1] = ["8k", "16k", "32k", "64k", "128k", "256k", "512k", "1m", "2m"];
/// The name for all sizes that are not named themselves.
const ALL: &str = "all";

/// When folios of one size are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Always,
    /// As the machine's own setting says when the run begins.
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

/// What is wrong with a value of `--thp`.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FolioOptionError {
    /// No size with a word.
    #[error("'{0}' is not SIZE=WORD, e.g. 64k=always,2m=inherit")]
    Form(String),
    /// No such size.
    #[error("unknown size '{0}'; there are 8k, 16k, 32k, 64k, 128k, 256k, 512k, 1m, 2m and all")]
    Size(String),
    /// No such word.
    #[error("{size}={word}: unknown word; there are always, inherit, madvise and never")]
    Word {
        /// As given.
        size: String,
        /// As given.
        word: String,
    },
    /// A size given twice.
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
        let (place, name) = match SIZES.iter().position(|name| name.eq_ignore_ascii_case(size)) {
            Some(index) => (&mut of_size[index], SIZES[index]),
            None if size.eq_ignore_ascii_case(ALL) => (&mut others, ALL),
            None => return Err(FolioOptionError::Size(size.to_owned())),
        };
        let when = When::read(word)
            .ok_or_else(|| FolioOptionError::Word { size: size.to_owned(), word: word.to_owned() })?;
        if place.replace(when).is_some() {
            return Err(FolioOptionError::Twice(name));
        }
    }
    Ok(FolioOption(of_size.map(|when| when.or(others).unwrap_or(When::Never))))
}

impl FolioOption {
    /// The sizes that members may make. `inherited` is the text of the machine's own setting ([`INHERITED`]); it is asked for only when
    /// it matters, and a kernel without one makes no huge pages.
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Always and madvise, on a machine with this setting.
    fn orders(value: &str, machine: &str) -> (u32, u32) {
        let option = parse(value).unwrap_or_else(|error| panic!("{value}: {error}"));
        let FolioOrders { always, madvise } = option.orders(|| Some(machine.to_owned()));
        (always, madvise)
    }

    #[test]
    fn each_size_has_its_word_and_the_others_are_never_made() {
        let machine = "always [madvise] never\n";
        assert_eq!(orders("64k=always", machine), (1 << 4, 0));
        assert_eq!(orders("64k=always,2m=inherit", machine), (1 << 4, 1 << 9));
        assert_eq!(orders("8k=madvise,1m=always,512k=never", machine), (1 << 8, 1 << 1));
        for (order, size) in (1..).zip(SIZES) {
            assert_eq!(orders(&format!("{size}=always"), machine), (1 << order, 0), "{size}");
        }
        assert_eq!(orders("64K=always,2M=madvise", machine), (1 << 4, 1 << 9));
    }

    #[test]
    fn all_is_every_size_that_is_not_named_wherever_it_stands() {
        let machine = "[always] madvise never\n";
        assert_eq!(orders("all=always", machine), (FolioOrders::ALL.always, 0));
        for value in ["all=madvise,64k=never,2m=always", "64k=never,2m=always,all=madvise"] {
            assert_eq!(orders(value, machine), (1 << 9, 0x3fe & !(1 << 4 | 1 << 9)), "{value}");
        }
        assert_eq!(orders("all=never", machine), (0, 0));
    }

    #[test]
    fn what_is_inherited_is_the_setting_of_the_machine() {
        for (machine, expected) in [
            ("[always] madvise never\n", (1 << 4, 0)),
            ("always [madvise] never\n", (0, 1 << 4)),
            ("always madvise [never]\n", (0, 0)),
            ("something else", (0, 0)),
        ] {
            assert_eq!(orders("64k=inherit", machine), expected, "{machine}");
        }
        let none = parse("64k=inherit").expect("understood").orders(|| None);
        assert_eq!(none, FolioOrders::NONE);
        let unasked =
            parse("64k=always").expect("understood").orders(|| unreachable!("nothing is inherited"));
        assert_eq!(unasked, FolioOrders { always: 1 << 4, madvise: 0 });
    }

    #[test]
    fn each_mistake_has_its_message() {
        use FolioOptionError as E;
        let word = |size: &str, word: &str| E::Word { size: size.into(), word: word.into() };
        for (value, error) in [
            ("", E::Form(String::new())),
            ("always", E::Form("always".into())),
            ("64k=always,", E::Form(String::new())),
            ("64k:always", E::Form("64k:always".into())),
            ("4k=always", E::Size("4k".into())),
            ("64=always", E::Size("64".into())),
            (" 64k=always", E::Size(" 64k".into())),
            ("4m=always", E::Size("4m".into())),
            ("=always", E::Size(String::new())),
            ("64k=", word("64k", "")),
            ("64k=Always", word("64k", "Always")),
            ("64k=always=never", word("64k", "always=never")),
            ("64k=always,64K=never", E::Twice("64k")),
            ("all=always,ALL=always", E::Twice("all")),
        ] {
            assert_eq!(parse(value), Err(error), "{value:?}");
        }
        let text = parse("3k=always").expect_err("no size").to_string();
        assert!(SIZES.iter().chain(&[ALL]).all(|name| text.contains(name)), "{text}");
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(value in "([0-9a-zA-Z]{0,4}=?(always|inherit|madvise|never|[ -~]{0,6}),?){0,5}") {
            if let Ok(option) = parse(&value) {
                let orders = option.orders(|| None);
                prop_assert_eq!(orders.always & orders.madvise, 0);
                prop_assert_eq!((orders.always | orders.madvise) & !0x3fe, 0);
            }
        }
    }
}
