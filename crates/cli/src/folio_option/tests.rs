use super::*;
use proptest::prelude::*;

/// The orders made always and on madvise, on a machine with this setting.
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
    let unasked = parse("64k=always").expect("understood").orders(|| unreachable!("nothing is inherited"));
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
