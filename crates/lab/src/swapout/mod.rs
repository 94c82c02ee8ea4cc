//! Anonymous memory that leaves for swap, folio by folio, on the real allocator (spec §3).
//!
//! A [`Cpu`] runs the tasks of one logical CPU: they write memory that they have never touched
//! before, as `usemem` does, and memory beyond the limit leaves in batches, oldest first.
//!
//! Real are the allocator with its swap cache and its frees, the bytes (written, copied to a device
//! in RAM, compared by [`Cpu::verify`]), and with [`Backing::Paged`] the memory, which the running
//! kernel gives and takes away.
//!
//! Modelled are the page table, the list of inactive folios, and splits: records of one page each
//! replace a record of 2^order, and each page then has its own allocation, its own entry in the
//! swap cache, its own request and its own free.

mod cpu;
mod folio;
mod page_table;
mod task_memory;
mod write_back;

pub use cpu::{Backing, Cpu, Exit, Setup, Verified};
pub use folio::{Folio, LargeFolios, Splits};
pub use page_table::{PageState, PageTable, SwappedRun};
pub use task_memory::{HugePages, TaskMemory, UnmapBy, Unmapper, huge_bytes};
