use super::*;

#[test]
fn the_kept_costs_are_in_range_and_say_their_machine() {
    let kept = CostsFile::kept();
    assert_eq!(kept.costs.out_of_range(), None);
    assert!(kept.machine.contains("processors"), "{}", kept.machine);
}

#[test]
fn a_written_file_is_read_back_and_a_wrong_one_says_what_to_do() {
    let path = std::env::temp_dir().join(format!("folioswap-costs-{}", std::process::id()));
    let kept = CostsFile::kept();
    kept.write(&path).unwrap();
    assert_eq!(CostsFile::read(&path).unwrap(), kept);
    std::fs::write(&path, kept.json().replace("\"lock_ns\"", "\"lock\"")).unwrap();
    let error = CostsFile::read(&path).unwrap_err().to_string();
    assert!(error.contains("folioswap lab calibrate"), "{error}");
    let negative = CostsFile { costs: Costs { list_ns: -1.0, ..kept.costs }, ..kept };
    negative.write(&path).unwrap();
    let error = CostsFile::read(&path).unwrap_err().to_string();
    assert!(error.contains("list_ns"), "{error}");
    std::fs::remove_file(&path).unwrap();
}
