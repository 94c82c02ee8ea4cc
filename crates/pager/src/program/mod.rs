//! The changes of the program to its mappings, and its advice about its memory.

pub mod advice;
pub mod announce;
pub mod events;
pub mod huge_advice;
