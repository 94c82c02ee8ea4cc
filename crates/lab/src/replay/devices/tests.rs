use super::*;

fn parse(text: &str) -> Result<Device, DeviceError> {
    Device::parse(text, |size| size.parse().ok())
}

#[test]
fn good_ones() {
    let device = parse("ram,size=8192,prio=3,sync,discard").unwrap();
    assert_eq!((device.pages, device.priority), (Some(2), Some(3)));
    assert!(device.synchronous && device.discard);
    assert!(parse("zram").unwrap().synchronous && !parse("zram,async").unwrap().synchronous);
}

#[test]
fn bad_ones_are_named() {
    let text = |text: &str| parse(text).unwrap_err().to_string();
    assert!(text("floppy").contains("\"floppy\" is no kind of device"));
    assert!(text("zram,size=4096").contains("size=4096"));
    assert!(text("zram,size=much").contains("size=much"));
    assert!(text("zram,prio=-1").contains("0 to 32767") && text("zram,prio=40000").contains("0 to 32767"));
    assert!(text("zram,fast").contains("no option of a device"));
    assert!(text("zram,sync,async").contains("twice"));
    assert!(text("").contains("no kind of device"));
}
