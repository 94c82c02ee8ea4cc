//! The command `folioswap`.
//!
//! `no_main`: the Rust runtime would set SIGPIPE to ignored before anybody could see what it was, and the program that
//! `run` starts must find its signals as our caller left them.
#![no_main]

/// The C entry point. The arguments are read through `std::env`, which glibc fills in before this is called.
// SAFETY: `main` is the one symbol of this name in the program, with the signature that the C runtime calls.
#[unsafe(no_mangle)]
pub extern "C" fn main(_argc: libc::c_int, _argv: *const *const libc::c_char) -> libc::c_int {
    folioswap_cli::main()
}
