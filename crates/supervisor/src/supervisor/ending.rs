//! The end of a run: the report when CMD has ended, and the one message when the group must be
//! ended.

use super::Supervisor;
use crate::{
    ipc::link::{Packet, Remains},
    processes::proc,
    report::{Report, outcome::Outcome, totals::Levels},
    size,
};
use folioswap_group::{decisions::GroupState, protocol::OutOfMemory};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write;

impl Supervisor {
    /// Ends the group because the member `pid` cannot keep the limit, for the reason that its
    /// message states.
    pub(super) fn out_of_memory(&mut self, pid: u32, words: [u64; 3]) -> ! {
        let name = proc::name(pid);
        let limit = size::show(self.settings.limit);
        let [reason, has, needed] = words;
        let ended = "ended CMD and everything that it started";
        let (outcome, message) = if reason == OutOfMemory::Unmanaged as u64 {
            let advice = size::suggest(needed.max(has));
            let message = format!(
                "process {pid} ({name}) has {} that cannot be swapped out, more than the limit of {limit} leaves; {ended}. \
                 Give at least --memory {advice}",
                size::show(has)
            );
            (Outcome::UnmanagedAboveLimit, message)
        } else if reason == OutOfMemory::PagerFailed as u64 {
            let error = std::io::Error::from_raw_os_error(has as i32);
            let message = format!(
                "the pager of process {pid} ({name}) failed: {error}; {ended}, since its memory could not be trusted"
            );
            (Outcome::PagerFailed, message)
        } else {
            let message = format!(
                "out of swap: process {pid} ({name}) needs more than {}; {ended}. {}",
                self.settings.devices.full(&limit),
                self.settings.devices.advice()
            );
            (Outcome::OutOfSwap, message)
        };
        self.end_group(outcome, &format!("folioswap: {message}\n"))
    }

    /// Ends the whole group: prints the message, ends every process, reports, and exits.
    pub(super) fn end_group(&mut self, outcome: Outcome, message: &str) -> ! {
        self.totals.sample(self.settings.memory.group(), self.clusters.used());
        self.close_group();
        self.say(message);
        if !self.reported {
            self.report(outcome, Remains::Nothing);
        }
        self.networks.finish();
        std::process::exit(outcome.status());
    }

    /// Tells members that the group ends, and kills CMD and all descendants.
    pub(super) fn close_group(&self) {
        self.settings.memory.writer().set_state(GroupState::Ending);
        if let Some(pid) = Pid::from_raw(self.cmd as i32)
            && self.ended.is_none()
        {
            let _ = kill_process(pid, Signal::KILL);
        }
        proc::kill_descendants();
    }

    /// Writes the report when CMD has ended, and lets the front go.
    pub(super) fn report(&mut self, outcome: Outcome, remains: Remains) {
        self.validate();
        self.drain_rings();
        let recorded = self.recording.as_ref().map(|recording| {
            let recorded = recording.recorded(self.connections.iter().filter_map(|c| c.ring.as_ref()));
            if let Some(warning) = recorded.warning() {
                self.say(&format!("folioswap: --trace {}: {warning}\n", recording.path().display()));
            }
            recorded
        });
        self.totals.sample(self.settings.memory.group(), self.clusters.used());
        let group = self.settings.memory.group();
        let (devices, devices_now) = Report::devices(group, &self.totals, &self.settings.devices.names());
        let report = Report {
            outcome,
            limit: self.settings.limit,
            scope: self.settings.scope,
            wall: self.settings.started.elapsed(),
            sums: self.totals.sums(group),
            now: Levels::read(group),
            totals: self.totals.clone(),
            devices,
            devices_now,
            unmanaged: self.census.programs().to_vec(),
            unmanaged_peak: self.unmanaged_peak,
            recorded,
        };
        if let Some(mut file) = self.settings.json.take()
            && let Err(error) = writeln!(file, "{:#}", report.json())
        {
            self.say(&format!("folioswap: --stats-json: {error}\n"));
        }
        if self.settings.text_wanted {
            self.say(&report.text());
        }
        self.link.iter().for_each(|link| link.send(&Packet::Ended(outcome.status(), remains)));
        self.reported = true;
    }
}
