use super::*;

/// The last but one is out of use.
const PRIORITIES: [Option<i32>; 6] = [Some(10), Some(0), Some(-1), Some(0), None, Some(3)];

fn bits(list: &str) -> Result<u32, TiersError> {
    devices_in(list, PRIORITIES.into_iter()).map(DeviceMask::bits)
}

#[test]
fn a_tier_is_all_devices_of_its_priority() {
    assert_eq!(bits("10"), Ok(0b0001));
    assert_eq!(bits("0"), Ok(0b1010));
    assert_eq!(bits(" -1 , 10 "), Ok(0b0101));
    assert_eq!(bits("0,0"), Ok(0b1010));
    assert_eq!(bits("3"), Ok(0b10_0000));
    assert_eq!(bits("all"), Ok(u32::MAX), "those that are added later too");
}

#[test]
fn lists_that_are_none() {
    assert_eq!(bits("5"), Err(TiersError::NoTier(5)));
    assert_eq!(bits("10,5"), Err(TiersError::NoTier(5)));
    for list in ["", ",", "10,", "fast", "all,0", "1.5", "99999999999"] {
        assert_eq!(bits(list), Err(TiersError::Form), "{list}");
        assert_eq!(check(list), Err(TiersError::Form), "{list}");
    }
    assert_eq!(check("7,-3"), Ok(()), "which devices there are is not known yet");
}

#[test]
fn who_names_a_device_means_its_tier() {
    let whole = |devices| whole_tiers(DeviceMask::from_bits(devices), PRIORITIES.into_iter()).bits();
    assert_eq!(whole(0b0010), 0b1010);
    assert_eq!(whole(0b1001), 0b1011);
    assert_eq!(whole(0b01_0000), 0b01_0000, "the tier of a device that is out of use is no tier");
    assert_eq!(whole(1 << 20), 1 << 20, "no device yet");
}
