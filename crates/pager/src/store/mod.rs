//! From staging to the devices, and from one device to another.
//!
//! | file | concept |
//! |---|---|
//! | `write_back`, `write_run` | berths are written, and leave the swap cache |
//! | `swap_out`, `part` | a row gets runs of slots, one for each folio in it |
//! | `clean` | pages that keep their stored copy, and when they give it up |
//! | `freeing` | entries that lie side by side are freed together |
//! | `demote` | the oldest pages of the store go on to a slower device |
//! | `recompress` | idle pages are stored once more, smaller |
//! | `swapoff` | a device is emptied while it is in use: the engine's part |

pub mod clean;
pub mod demote;
pub mod freeing;
pub mod part;
pub mod recompress;
pub mod swap_out;
pub mod swapoff;
pub mod write_back;
mod write_run;
