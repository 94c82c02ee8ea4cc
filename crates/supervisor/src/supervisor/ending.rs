//! The end of a run: the report when CMD has ended, and the one message when the group must be
//! ended.

use super::{Supervisor, connection::Pager, pagers::Program, shortage::Complaint};
use crate::{
    devices::Tiers,
    ipc::link::{Packet, Remains},
    processes::{orphans::Sender, proc},
    report::{Report, outcome::Outcome, totals::Levels},
    size,
};
use folioswap_group::{decisions::GroupState, protocol::OutOfMemory};
use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process, pidfd_send_signal},
};
use std::io;

/// Said of a CMD that the agent was not in, though nothing that `run` looks at beforehand forbade
/// it.
const NEVER_MANAGED: &str = "folioswap: CMD ran without being managed: the agent was not loaded into it, or could not join; \
                             nothing of it was swapped\n";
/// What the message says of the processes that end with the group.
pub(super) const ENDED: &str = "ended CMD and everything that it started";

impl Supervisor {
    /// Ends the group because it is out of memory, as this member has reported and as we see too.
    /// The member's figures count up to `most` bytes.
    pub(super) fn out_of_memory(&mut self, complaint: Complaint, most: u64) -> ! {
        let Complaint { pid, reason, has, needed } = complaint;
        let (name, limit) = (proc::name(pid), size::show(self.settings.limit));
        let (has, needed) = (has.min(most), needed.min(most));
        let (outcome, message) = if reason == OutOfMemory::Unmanaged {
            let advice = size::suggest(needed.max(has));
            let who = match self.settings.memory.group().live_members().count() {
                1 => format!("process {pid} ({name}) has"),
                _ => "all processes together have".to_owned(),
            };
            let message = format!(
                "{who} {}{} that cannot be swapped out, more than the limit of {limit} leaves; {ENDED}. Give at least \
                 --memory {advice}",
                size::show(has),
                self.parts_of_unswappable()
            );
            (Outcome::UnmanagedAboveLimit, message)
        } else {
            let tiers = Tiers::of(self.settings.memory.group().decisions);
            let message = format!(
                "out of swap: process {pid} ({name}) needs more than {}; {ENDED}. {}",
                self.settings.devices.full(&limit, tiers),
                self.settings.devices.advice(tiers)
            );
            (Outcome::OutOfSwap, message)
        };
        self.end_group(outcome, &format!("folioswap: {message}\n"))
    }

    /// Ends the process of a member whose pager cannot go on: its memory cannot be trusted. A
    /// member may say so of itself, so this costs nobody else. The run is over, though, if the
    /// member is CMD, and might end every other process of the group as well.
    pub(super) fn pager_failed(&mut self, index: usize, errno: i32) {
        let connection = &mut self.connections[index];
        if connection.pager == Pager::Failed {
            return;
        }
        connection.pager = Pager::Failed;
        let (pid, sender) = (connection.pid, connection.sender());
        let error = io::Error::from_raw_os_error(errno);
        let failed = format!("folioswap: the pager of process {pid} ({}) failed: {error}", proc::name(pid));
        let why = "since its memory could not be trusted";
        if pid == self.cmd && may_end_all(sender) {
            self.end_group(Outcome::PagerFailed, &format!("{failed}; {ENDED}, {why}\n"));
        }
        // One that has ended by itself needs no signal. The connection stays until the process has
        // ended, because until then it may write to its clusters.
        let connection = &self.connections[index];
        let process = connection.program.as_ref().map_or(&connection.process, Program::process);
        match pidfd_send_signal(process, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => self.say(&format!("{failed}; the process was ended, {why}\n")),
            Err(errno) => {
                let errno = io::Error::from(errno);
                self.say(&format!("{failed}, and we may not end it ({errno}); end it by hand\n"));
            }
        }
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
        self.look_at_course();
        self.sample_course();
        let group = self.settings.memory.group();
        let (devices, devices_now) = Report::devices(group, &self.totals, &self.settings.devices.names());
        let report = Report {
            outcome,
            limit: self.settings.limit,
            scope: self.settings.scope,
            way: self.settings.way,
            wall: self.settings.started.elapsed(),
            sums: self.totals.sums(group),
            now: Levels::read(group),
            totals: self.totals.clone(),
            devices,
            devices_now,
            unmanaged: self.census.programs().cloned().collect(),
            unmanaged_peak: self.unmanaged_peak,
            recorded,
            refaulted: self.refaulted(),
            latency: self.course.latency,
            pressure: group.decisions.pressure(),
        };
        let failed = self.settings.outputs.write(&report, self.course.record.as_ref());
        failed.iter().for_each(|line| self.say(line));
        // With a status of its own, and without a word, CMD would seem to have been managed.
        if self.agent.is_some() && !self.cmd_was_member && matches!(outcome, Outcome::Exited(_)) {
            self.say(NEVER_MANAGED);
        }
        report.printed(self.settings.outputs.printed).iter().for_each(|text| self.say(text));
        self.link.iter().for_each(|link| link.send(&Packet::Ended(outcome.status(), remains)));
        self.reported = true;
    }
}

/// Whether this sender might end every process of the group by itself.
fn may_end_all(sender: Sender) -> bool {
    let all = proc::descendants(std::process::id());
    all.into_iter().filter_map(proc::identity).all(|identity| sender.may_end(identity.user))
}
