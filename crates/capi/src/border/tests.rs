use super::*;

#[test]
fn a_panic_is_a_code_and_a_text() {
    let code = guarded(|| panic!("on purpose {}", 7));
    assert_eq!(code, FolioswapCode::FOLIOSWAP_EBUG);
    // SAFETY: the library's own string.
    let text = unsafe { CStr::from_ptr(folioswap_last_error()) };
    assert_eq!(text.to_str(), Ok("a bug in folioswap: on purpose 7"));
    assert_eq!(figure(5, || Err(invalid("no"))), 5);
    assert_eq!(guarded(|| Ok(())), FolioswapCode::FOLIOSWAP_OK);
}
