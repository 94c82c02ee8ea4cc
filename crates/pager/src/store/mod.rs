//! From staging to the devices, and from one device to another: write-back, clean copies, demotion,
//! recompression, swapoff.

pub mod clean;
pub mod demote;
pub mod freeing;
pub mod part;
pub mod recompress;
pub mod swap_out;
pub mod swapoff;
pub mod write_back;
mod write_run;
