use super::*;

#[test]
fn a_device_is_found_by_its_name_and_by_a_path_to_it() {
    let names = ["zram", "/var/tmp", "nbd0"].map(PathBuf::from);
    let at = |given: &str| find(&names, Path::new(given));
    assert_eq!(
        ["zram", "/var/tmp", "/var/../var/tmp/", "nbd0"].map(at),
        [Some(0), Some(1), Some(1), Some(2)]
    );
    assert_eq!(at("/var"), None);
    assert_eq!((list(&names), list(&[])), ("zram, /var/tmp, nbd0".to_owned(), "none".to_owned()));
}
