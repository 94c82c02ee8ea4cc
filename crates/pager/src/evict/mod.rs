//! The evictor thread: measures, registers memory, chooses what leaves, and moves it out.

pub mod announced;
pub mod batch;
pub mod candidates;
pub mod clock;
pub mod cold;
pub mod direct_reclaim;
pub mod evictor;
pub mod hand_over;
pub mod huge_page_batch;
pub mod isolate;
pub mod managed;
pub mod measure;
pub mod moves;
pub mod page_out;
pub mod recompress;
pub mod registration;
pub mod sharing;
pub mod shortage;
pub mod store_share;
pub mod survey;
pub mod swapoff;
pub mod tiers;
pub mod upkeep;
pub mod validate;
pub mod wanted;
pub mod workingset;
