//! The evictor thread: it measures, registers memory, chooses pages that leave, and moves them out.
//! A pass (`evictor.rs`) is a list of calls into the other files.
//!
//! | file | concept |
//! |---|---|
//! | `evictor` | the thread, its rounds and passes; its parts are the next six |
//! | `clock` | the hand, the present pages ahead of it, how fast pages age |
//! | `survey` | the last measurements, and when the next are due |
//! | `shortage` | the shortage that is being reclaimed for |
//! | `tiers` | which device a page goes to, and what of the store goes on |
//! | `upkeep` | recompression, compaction and validation, when nothing is short |
//! | `hand_over` | rows that leave by the hand of the handler |
//! | `measure`, `managed`, `announced` | sizes of the process and its parts |
//! | `idle` | between the rounds of an idle process |
//! | `registration` | new mappings are registered with userfaultfd |
//! | `wanted` | how much this process should give up, and for whom |
//! | `batch`, `huge_page_batch` | one batch: rows leave, berths are written back |
//! | `candidates` | the pages of a piece that may leave |
//! | `isolate`, `moves` | the pages are claimed, and moved by UFFDIO_MOVE |
//! | `page_out`, `cold` | advice of the program: MADV_PAGEOUT and MADV_COLD |
//! | `gone` | berths whose pages were given up leave staging when nothing is short |
//! | `direct_reclaim` | berths are offered to a handler that waits for memory |
//! | `sharing` | memory that relatives share is protected |
//! | `workingset` | the length of the inactive list |
//! | `store_share` | the compressed store's share of the memory |
//! | `recompress`, `swapoff` | when idle pages are recompressed; devices that come and go |
//! | `sweep` | everything leaves at once, for tests |
//! | `validate` | every invariant, checked while the program runs |

pub mod announced;
pub mod batch;
pub mod candidates;
pub mod clock;
pub mod cold;
pub mod direct_reclaim;
pub mod evictor;
pub mod gone;
pub mod hand_over;
pub mod huge_page_batch;
pub mod idle;
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
pub mod sweep;
pub mod tiers;
pub mod upkeep;
pub mod validate;
pub mod wanted;
pub mod workingset;
