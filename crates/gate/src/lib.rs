//! The system-call gate: one function through which every system call of a program goes.
//!
//! Syscall User Dispatch traps each call that is made elsewhere, and its handler leads the thread
//! into the gate. A site that traps again and again is rewritten: its `syscall` becomes a jump.
//! The gate can tell a pager what a call is about to use ([`hooks`], [`hazard`]). Without hooks it
//! changes nothing. `README.md` has the paths of a call as a figure, and the races.
//!
//! The crate uses no operating system library, no allocator and no thread-local storage, and what
//! it adds to an image needs no relocation. It serves x86-64; on other architectures it is empty.
#![cfg(target_arch = "x86_64")]
#![no_std]

#[cfg(target_feature = "avx")]
compile_error!("the entry saves SSE registers only: do not compile the gate with AVX enabled");

mod altstack;
mod call;
mod confined;
mod context;
mod delivery;
pub mod dispatch;
mod entry;
pub mod figures;
pub mod hazard;
pub mod hooks;
pub mod inside;
mod kernel;
mod pieces;
pub mod pins;
mod process;
pub mod rewrite;
mod signals;
pub mod slot;
mod sync;
pub mod table;
mod touch;
