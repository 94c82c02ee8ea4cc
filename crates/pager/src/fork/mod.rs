//! A forked child reads what it must read, from its first instruction on.

pub mod freeze;
pub mod headroom;
pub mod protocol;
pub mod raw_child;
