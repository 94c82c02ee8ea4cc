//! The decisions of the engine: the state of a page, which pages leave, which come back, and how
//! many at a time.
//!
//! This crate is pure: it knows no operating system, no heap and no clock. The pager feeds it with
//! faults, pages and times; tests and simulations feed it from a seed. It builds for targets
//! without an operating system (`scripts/test.sh unit` builds it for `x86_64-unknown-none`).
//!
//! | Module | Concept |
//! |---|---|
//! | [`units`] | page, piece and block |
//! | [`page`] | the page word: its states, and every transition as a pure function |
//! | [`page_table`] | managed address -> page word |
//! | [`memory`] | where tables get their memory |
//! | [`lock`] | a spin lock for sections of a few dozen instructions |
//! | [`history`] | recent faults of a block, and the windows that follow from them |
//! | [`around`] | whether bringing the rest of a 64 KiB piece pays for a touch out of order |
//! | [`readahead`] | how many pages around a fault are read ahead from a slow device |
//! | [`tiers`] | which devices take a group's new pages: lists of priorities |
//! | [`turns`] | the order of devices: by priority, equals in turn |
//! | [`reclaim`] | when memory is taken, from which member, which pages, and when nothing is left |
#![cfg_attr(not(test), no_std)]

pub mod around;
pub mod history;
pub mod lock;
pub mod memory;
pub mod page;
pub mod page_table;
pub mod readahead;
pub mod reclaim;
pub mod tiers;
pub mod turns;
pub mod units;
