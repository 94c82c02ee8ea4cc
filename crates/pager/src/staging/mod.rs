//! The ring between the program and the store, and the units in which pages pass through it.
//!
//! | file | concept |
//! |---|---|
//! | `ring` | the berths, in the order in which they came |
//! | `candidates` | the pages of a piece that may be taken |
//! | `row`, `row_pages` | pieces side by side that leave together |
//! | `isolation` | the outcome of a move for each piece |
//! | `batch` | the outcome of one batch of eviction |
//! | `staged_folio` | a folio in the ring, as slot words name it |

pub mod batch;
pub mod candidates;
pub mod isolation;
pub mod ring;
pub mod row;
pub mod row_pages;
pub mod staged_folio;
