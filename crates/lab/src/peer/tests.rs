#[test]
fn proc_swaps() {
    let text = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/dev/zram0                              partition\t2097148\t\t2048\t\t-2\n";
    let devices = super::parse_swaps(text);
    assert_eq!(devices.len(), 1);
    assert_eq!((devices[0].name.as_str(), devices[0].size_kib), ("/dev/zram0", 2_097_148));
    assert_eq!((devices[0].used_kib, devices[0].priority), (2048, -2));
}
