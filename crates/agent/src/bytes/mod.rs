//! The C library's functions on bytes, for the agent alone.
//!
//! The compiler and the codecs call them by name. A program may have functions of these names (an
//! allocator's, a sanitizer's), and the dynamic linker would give the pager those: they would run
//! in its threads, on memory that is being moved. So the agent has its own, which nobody else sees
//! (hidden), and no undefined symbol of such a name.
//!
//! They are assembly because a compiler makes calls of these very functions out of loops.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;
