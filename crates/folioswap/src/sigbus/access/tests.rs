use super::*;

#[cfg(target_arch = "x86_64")]
#[test]
fn an_error_code_tells_write_and_presence() {
    assert_eq!(by_error_code(0b100), Access::Read);
    assert_eq!(by_error_code(0b110), Access::Write);
    assert_eq!(by_error_code(0b111), Access::WriteProtected);
}

#[test]
fn a_syndrome_tells_write_and_presence() {
    // Data aborts from user mode: translation faults of level 3, and permission faults.
    assert_eq!(by_syndrome(0x9200_0007), Access::Read);
    assert_eq!(by_syndrome(0x9200_0047), Access::Write);
    assert_eq!(by_syndrome(0x9200_004f), Access::WriteProtected);
    assert_eq!(by_syndrome(0x9200_0147), Access::Read);
}

#[test]
fn the_syndrome_is_found_behind_other_records() {
    // The registers of floating point (528 bytes), the syndrome, the end.
    let mut records = [0; 80];
    records[0] = 528 << 32 | 0x4650_8001;
    records[66] = 16 << 32 | 0x4553_5201;
    records[67] = 0x9200_0047;
    assert_eq!(syndrome_among(&records), Some(0x9200_0047));
    records[66] = 0;
    assert_eq!(syndrome_among(&records), None);
    records[0] = 4 << 32 | 1;
    assert_eq!(syndrome_among(&records), None, "a record smaller than its head ends the search");
    assert_eq!(syndrome_among(&[1 << 40 | 1]), None, "so does one behind the end");
}
