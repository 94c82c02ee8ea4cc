//! The ring between the program and the store, and the units in which pages pass through it:
//! pieces, rows, batches.

pub mod batch;
pub mod candidates;
pub mod isolation;
pub mod ring;
pub mod row;
pub mod row_pages;
pub mod staged_folio;
