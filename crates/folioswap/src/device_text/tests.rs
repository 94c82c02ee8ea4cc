use super::*;

#[test]
fn what_is_no_device_is_refused_with_the_reason() {
    for text in [
        "",
        "disk",
        "file",
        "file:",
        "ram",
        "zram,size=1G",
        "zram,prio=x",
        "zram,prio=1,prio=2",
        "zram,discard",
    ] {
        let error = text.parse::<Device>().expect_err(text);
        assert!(matches!(&error, Error::DeviceText { given, .. } if given == text), "{text}: {error}");
    }
}
