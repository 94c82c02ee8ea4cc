//! What is written and printed when CMD has ended.

use super::{Printed, Report, timeline};
use crate::course::record::Record;
use rustix::fd::{AsFd, BorrowedFd};
use std::{
    fs::File,
    io::{self, Write},
    time::Instant,
};

/// The files, opened before anything is started, and what is printed.
pub struct Outputs {
    /// What is printed.
    pub printed: Printed,
    /// The command as the user gave it, for report and timeline.
    pub title: String,
    /// The file of `--stats-json`.
    pub json: Option<File>,
    /// The file of `--report`.
    pub report: Option<File>,
    /// The file of `--timeline`.
    pub timeline: Option<File>,
}

impl Outputs {
    /// The record that report and timeline are made of, if one of them is wanted.
    pub fn record(&self, started: Instant) -> Option<Record> {
        (self.report.is_some() || self.timeline.is_some()).then(|| Record::new(started))
    }

    /// The descriptors of the files.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [&self.json, &self.report, &self.timeline].into_iter().flatten().map(AsFd::as_fd)
    }

    /// Writes the files, and closes them; returns a line for each that cannot be written.
    pub fn write(&mut self, report: &Report, record: Option<&Record>) -> Vec<String> {
        let mut failed = Vec::new();
        let mut note = |option: &str, written: io::Result<()>| {
            if let Err(error) = written {
                failed.push(format!("folioswap: {option}: {error}\n"));
            }
        };
        if let Some(mut file) = self.json.take() {
            note("--stats-json", writeln!(file, "{:#}", report.json()));
        }
        let Some(record) = record else { return failed };
        if let Some(mut file) = self.report.take() {
            note("--report", file.write_all(report.page(record, &self.title).as_bytes()));
        }
        if let Some(mut file) = self.timeline.take() {
            note(
                "--timeline",
                writeln!(file, "{}", timeline::trace(record, &self.title, std::process::id())),
            );
        }
        failed
    }
}
