//! Reclaim: when memory is taken, from which member, which pages leave, and when nothing is left.
//!
//! | Module | Concept |
//! |---|---|
//! | [`watermarks`] | levels of a charge at which reclaim begins, stops and makes faults wait |
//! | [`shares`] | how much each member gives of a group's excess |
//! | [`turns`] | whose turn it is to give, where members give different shares |
//! | [`aging`] | the pace at which the clock cools hot pages |
//! | [`workingset`] | refault distances and the nonresident age |
//! | [`inactive`] | the length of the inactive list (staging) |
//! | [`store_share`] | how much memory the compressed store may take above a slower device |
//! | [`division`] | division of a batch of write-backs between the evictor and a waiting thread |
//! | [`handover`] | ownership of a plan between evictor and handler |
//! | [`standstill`] | when a group is out of memory |
//! | [`crawl`] | when a group is at its limit for good, though it serves faults |

pub mod aging;
pub mod crawl;
pub mod division;
pub mod handover;
pub mod inactive;
pub mod shares;
pub mod standstill;
pub mod store_share;
pub mod turns;
pub mod watermarks;
pub mod workingset;
