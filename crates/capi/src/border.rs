//! The border between Rust and C: the last error, and the end of panics.

use crate::FolioswapCode;
use folioswap::{Error, ShmemError};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static LAST: RefCell<CString> = RefCell::new(CString::default());
}

/// The code and the text of a refused call.
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

/// Refuses an argument.
pub(crate) fn invalid(why: &str) -> Refusal {
    Refusal(FolioswapCode::FOLIOSWAP_EINVAL, why.to_owned())
}

fn remember(text: String) {
    // At a thread's end its thread-local storage may be gone.
    let _ =
        LAST.try_with(|last| *last.borrow_mut() = CString::new(text.replace('\0', " ")).unwrap_or_default());
}

/// Runs the body of a C function, and turns refusals and panics into codes.
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

/// Runs the body of a C function that returns a figure; `otherwise` where it was refused.
pub(crate) fn figure<R>(otherwise: R, work: impl FnOnce() -> Result<R, Refusal>) -> R {
    let mut result = otherwise;
    guarded(|| {
        result = work()?;
        Ok(())
    });
    result
}

/// Returns why the last function that failed in this thread did so, and the next step: one line of
/// English. The line is empty when none failed. It is valid until the next call of the library in
/// this thread; do not free it.
#[unsafe(no_mangle)]
pub extern "C" fn folioswap_last_error() -> *const c_char {
    static NOTHING: &CStr = c"";
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(NOTHING.as_ptr())
}

/// Returns the object of a handle.
///
/// # Safety
/// The handle is null, or was made by this library and has not been freed.
pub(crate) unsafe fn known<'a, T>(handle: *const T) -> Result<&'a T, Refusal> {
    // SAFETY: the caller upholds the `# Safety` section.
    unsafe { handle.as_ref() }.ok_or_else(|| invalid("a handle is NULL"))
}

/// Returns the target of a pointer for an answer.
///
/// # Safety
/// The pointer is null, or may be written.
pub(crate) unsafe fn output<'a, T>(pointer: *mut T) -> Result<&'a mut T, Refusal> {
    // SAFETY: the caller upholds the `# Safety` section.
    unsafe { pointer.as_mut() }.ok_or_else(|| invalid("a pointer for an answer is NULL"))
}

/// Returns an array of C as a slice. `None`: `count` is not 0, and the pointer is null.
///
/// # Safety
/// The pointer is null, or `count` members may be read.
pub(crate) unsafe fn slice<'a, T>(first: *const T, count: usize) -> Option<&'a [T]> {
    if count == 0 {
        return Some(&[]);
    }
    // SAFETY: the caller upholds the `# Safety` section.
    (!first.is_null()).then(|| unsafe { std::slice::from_raw_parts(first, count) })
}

/// Returns an array of C as a slice to be written. `None`: as for [`slice`].
///
/// # Safety
/// The pointer is null, or `count` initialised members may be written.
pub(crate) unsafe fn slice_mut<'a, T>(first: *mut T, count: usize) -> Option<&'a mut [T]> {
    if count == 0 {
        return Some(&mut []);
    }
    // SAFETY: the caller upholds the `# Safety` section.
    (!first.is_null()).then(|| unsafe { std::slice::from_raw_parts_mut(first, count) })
}

/// Returns a string of C.
///
/// # Safety
/// The pointer is null, or the string ends with a zero byte.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Refusal> {
    if text.is_null() {
        return Err(invalid("a string is NULL"));
    }
    // SAFETY: the caller upholds the `# Safety` section.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| invalid("a string is not UTF-8"))
}

#[cfg(test)]
mod tests;
