//! How measurements are shown: the part that `folioswap lab`, `folioswap bench` and the report of a
//! run share.
//!
//! | To find | look in |
//! |---|---|
//! | a measurement's setup, tables, caveats and chart, as text and JSON | `report.rs` |
//! | a table of text cells in Markdown, and percentages for it | `table.rs` |
//! | a bar chart as an SVG file | `chart.rs` |
//! | heat maps over time as an SVG file | `heat_map.rs` |
//! | what pictures that are files have in common | `picture.rs` |
//! | charts within the page of `run --report` | `svg.rs` |
//! | the progress bar on standard error | `progress.rs` |
//! | medians, confidence intervals and the equivalence test | `statistics.rs` |
//!
//! The crate knows nothing of swap: callers hand over names and figures.

mod chart;
mod heat_map;
mod picture;
mod progress;
mod report;
pub mod statistics;
pub mod svg;
mod table;

pub use chart::{Bar, Chart, PlotError};
pub use heat_map::{HeatMap, HeatMaps};
pub use progress::{Progress, Show};
pub use report::{Report, machine};
pub use table::{Table, percent};
