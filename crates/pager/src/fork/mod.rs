//! A forked child reads what it must read, from its first instruction on.

pub mod protocol;
pub mod raw_child;
pub mod room;
pub mod window;
