//! The command `folioswap`.
//!
//! The crate is `no_main` because the Rust runtime would set SIGPIPE to ignored before `main` could
//! read its disposition, and the program that `run` starts must find its signals as our caller left
//! them.
#![no_main]

/// The C entry point. The arguments are read through `std::env`, which glibc fills in before it
/// calls `main`.
// SAFETY: `main` is the only symbol of this name in the program, and has the signature that the C
// runtime calls.
#[unsafe(no_mangle)]
pub extern "C" fn main(_argc: libc::c_int, _argv: *const *const libc::c_char) -> libc::c_int {
    folioswap_cli::main()
}
