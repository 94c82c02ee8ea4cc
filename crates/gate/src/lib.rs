//! The system-call gate: one function through which every system call of a program goes.
//!
//! Syscall User Dispatch traps each call that is made elsewhere, and its handler leads the thread
//! into the gate. A site that traps again and again is rewritten: its `syscall` becomes a jump.
//! The gate can tell a pager what a call is about to use ([`hooks`], [`hazard`]). Without hooks it
//! changes nothing. `README.md` has the paths of a call as a figure, and the races.
//!
//! The crate uses no operating system library, no allocator and no thread-local storage, and what
//! it adds to an image needs no relocation. It serves x86-64; on other architectures it is empty.
#![no_std]

#[cfg(all(target_arch = "x86_64", target_feature = "avx"))]
compile_error!("the entry saves SSE registers only: do not compile the gate with AVX enabled");

#[cfg(target_arch = "x86_64")]
mod call;
#[cfg(target_arch = "x86_64")]
pub mod dispatch;
#[cfg(target_arch = "x86_64")]
mod entry;
#[cfg(target_arch = "x86_64")]
pub mod figures;
#[cfg(target_arch = "x86_64")]
pub mod hazard;
#[cfg(target_arch = "x86_64")]
pub mod hooks;
#[cfg(target_arch = "x86_64")]
mod kernel;
#[cfg(target_arch = "x86_64")]
pub mod pins;
#[cfg(target_arch = "x86_64")]
mod process;
#[cfg(target_arch = "x86_64")]
pub mod rewrite;
#[cfg(target_arch = "x86_64")]
mod signals;
#[cfg(target_arch = "x86_64")]
mod sync;
#[cfg(target_arch = "x86_64")]
pub mod table;
