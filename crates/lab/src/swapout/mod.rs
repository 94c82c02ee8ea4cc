//! Anonymous memory that leaves for swap, folio by folio, on the real allocator (spec §3).
//!
//! A [`Cpu`] carries out what tasks on one logical CPU do: they write memory that they have never touched before, as `usemem` does, and what is
//! beyond the limit leaves, oldest first, in batches. Real are the allocator with its swap cache and its frees, the bytes (written, copied to a device
//! in RAM, compared by [`Cpu::verify`]), and with [`Backing::Paged`] the memory, which the running kernel gives and takes away. Modelled are
//! the page table, the list of inactive folios, and what a split is: records of one page each in place of one of 2^order, after which each page has
//! an allocation, a place in the swap cache, a request, and a free of its own.

mod cpu;
mod folio;
mod page_table;
mod task_memory;
mod write_back;

pub use cpu::{Backing, Cpu, Exit, Setup, Verified};
pub use folio::{Folio, LargeFolios, Splits};
pub use page_table::{PageTable, Place, Run};
pub use task_memory::{HugePages, TaskMemory, UnmapBy, Unmapper, huge_bytes};
