use super::*;

fn asked(words: &[&str]) -> Result<Asked, HelperError> {
    read(&words.iter().map(OsString::from).collect::<Vec<_>>())
}

#[test]
fn a_line_of_fstab_becomes_arguments() {
    let options = "rw,memory=1G,size=8G,huge=always,swap=\"zram,prio=1\",swap=\"file:/a b,prio=0\",noexec,nofail,x-systemd.automount";
    let read = asked(&["folioswap", "/mnt/build", "-n", "-o", options]).expect("read");
    let arguments: Vec<_> = read.arguments.iter().map(|word| word.to_string_lossy()).collect();
    assert_eq!(
        arguments,
        [
            "--memory",
            "1G",
            "--size",
            "8G",
            "--huge",
            "always",
            "--swap",
            "zram,prio=1",
            "--swap",
            "file:/a b,prio=0"
        ]
    );
    assert_eq!(
        (read.directory, read.flags, read.kind),
        ("/mnt/build".into(), MountFlags::NOEXEC, Kind::Mount)
    );
    let read = asked(&["none", "/m", "-o", "remount,memory=2G"]).expect("read");
    assert_eq!(read.kind, Kind::Remount);
    assert_eq!(asked(&["none", "/m", "-fv"]).expect("read").kind, Kind::Fake);
}

#[test]
fn options_without_meaning_are_named() {
    let error = |words: &[&str]| asked(words).expect_err("refused").to_string();
    assert!(error(&["a", "/m", "-o", "memori=1G"]).contains("memori"));
    assert!(error(&["a", "/m", "-o", "memory"]).contains("memory=1G"));
    assert!(error(&["a", "/m", "-o", "swap=\"zram"]).contains("quote"));
    assert!(error(&["/m"]).contains("mount -t folioswap"));
    assert!(error(&["a", "/m", "-q"]).contains("mount -t folioswap"));
    // `mount -s` passes over what is not known.
    assert!(asked(&["a", "/m", "-s", "-o", "memori=1G"]).is_ok());
}
