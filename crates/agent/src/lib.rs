//! The agent: the shared object that `folioswap run` preloads into a program and its children.
//!
//! It makes the engine, starts the handler thread, and interposes the few C library functions whose
//! meaning must be kept: fork (by fork handlers), exec and the functions that start a shell (a new
//! image stays managed), thread creation and what the kernel uses of mutexes (control blocks and
//! those mutexes stay resident), madvise, mmap, mremap, mlockall, brk, ioctl (for a userfaultfd of
//! the program's own), and syscall, for those and futex by number. The kernel tells the pager
//! everything else.
//!
//! The agent is `no_std`, has no allocator, and depends on no version of the C library: every
//! function of the C library that it calls is looked up by name, and only in the program's own
//! threads.
//!
//! All of this holds in the profile `agent`, by which `crates/cli/build.rs` builds it. In others,
//! which unwind, it is compiled with `std` for the lints alone.
#![cfg_attr(panic = "abort", no_std)]

#[cfg(target_arch = "x86_64")]
mod boarding;
mod by_number;
mod bytes;
mod environment;
mod exec;
#[cfg(target_arch = "x86_64")]
mod exec_entry;
#[cfg(target_arch = "x86_64")]
mod gate;
#[cfg(target_arch = "x86_64")]
mod holds;
#[cfg(target_arch = "x86_64")]
mod injected;
mod instruments;
mod kernel_words;
mod libc;
mod locking;
mod mappings;
mod own_userfault;
#[cfg(panic = "abort")]
mod panic;
mod program_call;
mod remapping;
mod scratch;
mod shell;
mod start;
mod threads;
mod variadic;
