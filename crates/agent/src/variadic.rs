//! Functions of the C library that take a list of arguments of any length, made of functions that
//! take it as an array.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::variadic;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::variadic;
