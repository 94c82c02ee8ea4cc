//! Shmem objects: contents by offset that swap within a limit, without being mapped.

mod error;
mod map;
mod object;
mod space;
mod statistics;

pub use error::ShmemError;
pub use object::{HugePolicy, ShmemObject};
pub use space::{ShmemBuilder, ShmemSpace};
pub use statistics::ShmemStatistics;
