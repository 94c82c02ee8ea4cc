use super::*;
use crate::swap_option;
use folioswap_group::decisions::CLUSTERS_MAX;
use std::ffi::OsStr;

fn options(values: &[&str]) -> Vec<SwapOption> {
    values.iter().map(|value| swap_option::parse(OsStr::new(value)).expect(value)).collect()
}

fn ranges(values: &[&str]) -> Result<Vec<(u32, u32)>, DeviceError> {
    let mut devices = from_options(&options(values))?;
    number_clusters(&mut devices)?;
    Ok(devices.iter().map(|device| (device.description.first_cluster, device.description.clusters)).collect())
}

#[test]
fn cluster_numbers_do_not_touch() {
    let found = ranges(&["ram,size=8M", "zram", "file:/var/tmp,size=7M", "ram,size=2M"]).expect("devices");
    assert_eq!(found, [(0, 4), (0, 0), (5, 3), (9, 1)]);
}

#[test]
fn files_without_a_size_take_what_the_others_leave() {
    let found = ranges(&["file:/var/tmp,size=1023G", "file:/var"]).expect("devices");
    assert_eq!(found[0], (0, 1023 * 512));
    assert!(found[1].1 > 0 && found[1].0 + found[1].1 <= CLUSTERS_MAX as u32, "{found:?}");
    assert!(matches!(ranges(&["file:/var/tmp,size=1023G", "file:/var,size=2G"]), Err(DeviceError::TooLarge)));
}

#[test]
fn what_there_is_once_is_not_given_twice() {
    assert!(matches!(ranges(&["zram", "zram,prio=1"]), Err(DeviceError::StoreTwice)));
    let twice = ranges(&["file:/var/tmp", "file:/var/../var/tmp/,prio=3"]);
    assert!(matches!(twice, Err(DeviceError::DirectoryTwice(..))));
    assert!(matches!(ranges(&["file:/proc/self/exe"]), Err(DeviceError::Prepared { .. })));
    assert!(matches!(
        ranges(&["file:/proc/self/exe", "file:/proc/thread-self/exe"]),
        Err(DeviceError::FileTwice(..))
    ));
    let uuid = "file:/var/tmp,uuid=01234567-89ab-cdef-0123-456789abcdef";
    assert!(matches!(ranges(&[uuid]), Err(DeviceError::UuidOfDirectory(_))));
    assert!(matches!(ranges(&["file:/nowhere/at/all"]), Err(DeviceError::File { .. })));
    assert!(matches!(ranges(&["ram,size=1000T"]), Err(DeviceError::MoreThanRam { .. })));
    assert!(matches!(ranges(&["ram,size=2M"; 33]), Err(DeviceError::TooMany(33))));
}

#[test]
fn a_built_in_file_that_cannot_be_made_is_left_out_and_one_that_is_asked_for_is_not() {
    let nowhere = Path::new("/proc/nowhere");
    let nothing = Wanted { swap: &[], swap_dir: None, swap_max: None };
    let (devices, reason) = built_in(nothing, nowhere).expect("compressed RAM alone");
    let kinds: Vec<_> = devices.iter().map(|device| device.description.kind).collect();
    assert_eq!(kinds, [DeviceKind::Zram]);
    let prepared = PreparedDevices { devices, chosen: Chosen::BuiltIn, without_file: reason };
    let note = prepared.note().expect("a note");
    assert!(note.contains("/proc/nowhere") && note.ends_with('\n') && note.lines().count() == 1, "{note}");
    let all = Tiers { used: DeviceMask::ALL, masked: DeviceMask::NONE };
    assert!(
        prepared.full("1G", all).contains("/proc/nowhere") && prepared.advice(all).contains("--swap-dir")
    );

    for asked in
        [Wanted { swap_dir: Some(nowhere), ..nothing }, Wanted { swap_max: Some(1 << 30), ..nothing }]
    {
        assert!(matches!(built_in(asked, nowhere), Err(DeviceError::BuiltIn(_))));
    }
    let (devices, reason) =
        built_in(Wanted { swap_max: Some(0), ..nothing }, nowhere).expect("no file wanted");
    assert!(devices.len() == 1 && reason.is_none());
    let (devices, reason) = built_in(nothing, Path::new(BUILT_IN_DIRECTORY)).expect("both");
    assert!(devices.len() == 2 && reason.is_none());
}
