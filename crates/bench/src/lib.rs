//! `folioswap bench`: one program, the same data, the same limit on resident memory; without a limit, under folioswap, and under the kernel's
//! own swap (memory cgroup and zram) with each of its settings of huge pages. All of them in one run, in turn.
//!
//! * [`touch`] is the program: it fills memory with data that can be verified and touches it in several ways; [`usemem`] writes what the program of that name writes;
//!   [`hot_set`] touches a part of its memory again and again while it goes through the rest once; [`sort`] is GNU sort.
//! * [`engine`] lets it run under one engine; [`comparison`] under all of them, round after round; [`touch_table`], [`usemem_table`],
//!   [`hot_set_table`] and [`sort_table`] make the tables.
//! * [`faults`] tells what a touch met, [`resident`] what of a mapping is resident and in huge pages, [`folios`] what folios of each size came to.
//! * [`data`] makes page contents that can be verified from the page's number alone, with a known compressibility.

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
