use super::*;

#[test]
fn programs_are_found_as_execvp_does() {
    assert!(find(OsStr::new("sh")).is_ok());
    assert_eq!(find(OsStr::new("no-such-program-here")).expect_err("absent").status(), 127);
    assert_eq!(find(OsStr::new("")).expect_err("empty").status(), 127);
    assert_eq!(find(OsStr::new("/no/such")).expect_err("absent").status(), 127);
    assert_eq!(find(OsStr::new("/etc/passwd")).expect_err("not executable").status(), 126);
    assert_eq!(find(OsStr::new("/etc")).expect_err("directory").status(), 126);
    let found = resolve(OsStr::new("sh"), Some("/nowhere:/bin".into())).expect("in /bin");
    assert_eq!(found, Path::new("/bin/sh"));
}
