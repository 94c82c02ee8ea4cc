//! The border between Rust and C: the last error, and panics that end here.

use crate::FolioswapCode;
use folioswap::{Error, ShmemError};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static LAST: RefCell<CString> = RefCell::new(CString::default());
}

/// Why something was refused, with its text.
pub(crate) struct Refusal(pub(crate) FolioswapCode, pub(crate) String);

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Refusal(FolioswapCode::of(&error), error.to_string())
    }
}

impl From<ShmemError> for Refusal {
    fn from(error: ShmemError) -> Self {
        Refusal(FolioswapCode::of_shmem(error), error.to_string())
    }
}

/// An argument that cannot be.
pub(crate) fn invalid(why: &str) -> Refusal {
    Refusal(FolioswapCode::FOLIOSWAP_EINVAL, why.to_owned())
}

fn remember(text: String) {
    // At a thread's end there may be nothing to remember it in.
    let _ =
        LAST.try_with(|last| *last.borrow_mut() = CString::new(text.replace('\0', " ")).unwrap_or_default());
}

/// Does the work of a function of C's.
pub(crate) fn guarded(work: impl FnOnce() -> Result<(), Refusal>) -> FolioswapCode {
    let refusal = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return FolioswapCode::FOLIOSWAP_OK,
        Ok(Err(refusal)) => refusal,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
            Refusal(FolioswapCode::FOLIOSWAP_EBUG, format!("a bug in folioswap: {text}"))
        }
    };
    remember(refusal.1);
    refusal.0
}

/// As [`guarded`], for a figure that cannot be refused; `otherwise` where it was.
pub(crate) fn figure<R>(otherwise: R, work: impl FnOnce() -> Result<R, Refusal>) -> R {
    let mut result = otherwise;
    guarded(|| {
        result = work()?;
        Ok(())
    });
    result
}

/// Why the last function that failed in this thread did, and what to do about it: one line of English. Empty when none failed. It is valid until the
/// next call of the library in this thread; do not free it.
#[unsafe(no_mangle)]
pub extern "C" fn folioswap_last_error() -> *const c_char {
    static NOTHING: &CStr = c"";
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(NOTHING.as_ptr())
}

/// What a handle points to.
///
/// # Safety
/// It is null, or a handle that this library made and that has not been freed.
pub(crate) unsafe fn known<'a, T>(handle: *const T) -> Result<&'a T, Refusal> {
    // SAFETY: by contract.
    unsafe { handle.as_ref() }.ok_or_else(|| invalid("a handle is NULL"))
}

/// Where an answer goes.
///
/// # Safety
/// It is null, or may be written.
pub(crate) unsafe fn place<'a, T>(place: *mut T) -> Result<&'a mut T, Refusal> {
    // SAFETY: by contract.
    unsafe { place.as_mut() }.ok_or_else(|| invalid("a pointer for an answer is NULL"))
}

/// An array of C's; `None`: it has members, and its pointer is null.
///
/// # Safety
/// The pointer is null, or so many members may be read.
pub(crate) unsafe fn slice<'a, T>(first: *const T, count: usize) -> Option<&'a [T]> {
    if count == 0 {
        return Some(&[]);
    }
    // SAFETY: by contract.
    (!first.is_null()).then(|| unsafe { std::slice::from_raw_parts(first, count) })
}

/// The same, to be written.
///
/// # Safety
/// The pointer is null, or so many members may be written, and hold something.
pub(crate) unsafe fn slice_mut<'a, T>(first: *mut T, count: usize) -> Option<&'a mut [T]> {
    if count == 0 {
        return Some(&mut []);
    }
    // SAFETY: by contract.
    (!first.is_null()).then(|| unsafe { std::slice::from_raw_parts_mut(first, count) })
}

/// A string of C's.
///
/// # Safety
/// It is null, or ends with a zero byte.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Refusal> {
    if text.is_null() {
        return Err(invalid("a string is NULL"));
    }
    // SAFETY: by contract.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| invalid("a string is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_code_and_a_text() {
        let code = guarded(|| panic!("on purpose {}", 7));
        assert_eq!(code, FolioswapCode::FOLIOSWAP_EBUG);
        // SAFETY: a string of ours.
        let text = unsafe { CStr::from_ptr(folioswap_last_error()) };
        assert_eq!(text.to_str(), Ok("a bug in folioswap: on purpose 7"));
        assert_eq!(figure(5, || Err(invalid("no"))), 5);
        assert_eq!(guarded(|| Ok(())), FolioswapCode::FOLIOSWAP_OK);
    }
}
