//! `folioswap bench`: one program with the same data and the same limit on resident memory, run
//! without a limit, under folioswap, and under the kernel's own swap (memory cgroup and zram) with
//! each of its settings of huge pages, all of them in turn.
//!
//! | To find | look in |
//! |---|---|
//! | the programs that are measured | `touch.rs`, `usemem.rs`, `hot_set.rs`, `sort.rs` (GNU sort) |
//! | page contents that can be verified from the page's number | `data.rs` |
//! | the outcome of a touch; what of a mapping is resident | `faults.rs`, `resident.rs` |
//! | latencies | `histogram.rs` |
//! | one run under one engine | `engine.rs` |
//! | all engines, round after round; with several kinds of data | `comparison.rs`, `kinds.rs` |
//! | the tables of each program, and their common parts | `*_table.rs`, `tables.rs` |
//! | folios of each size, out and in | `folios.rs` |

pub mod comparison;
pub mod data;
pub mod engine;
pub mod faults;
pub mod folios;
pub mod histogram;
pub mod hot_set;
pub mod hot_set_table;
pub mod interrupts;
mod kinds;
pub mod memory;
pub mod resident;
pub mod sort;
pub mod sort_table;
mod tables;
pub mod touch;
pub mod touch_table;
pub mod usemem;
pub mod usemem_table;
