//! What the program does to its mappings and says of its memory.

pub mod advice;
pub mod announce;
pub mod events;
pub mod huge_advice;
