//! The measurements of the evictor: the process's size, the part of it that counts, and the part
//! that relatives share.

use crate::evict::evictor::Evictor;
use crate::kernel::futex::{self, Sharing};
use crate::kernel::proc::{ProcessSize, field_bytes, minor_faults, parse_statm, read_proc};
use crate::kernel::{process, sys};
use crate::units::PAGE;
use core::sync::atomic::Ordering::Relaxed;
use folioswap_group::counters::Counter;
use folioswap_group::decisions::Scope;
use folioswap_group::protocol::ProcFile;
use folioswap_policy::reclaim::watermarks::Watermarks;

/// When so much stopped being shared since a measurement, the measurement is repeated as soon as
/// possible.
const STALE_BYTES: u64 = 1 << 20;

/// When the shared and file memory of the process has changed by so much, shared memory is measured
/// at once.
const SHARED_CHANGED_BYTES: u64 = 512 << 10;

/// The part of the limit by which the compressed store changes before its figures are published out
/// of turn: a program that advises the kernel to page out 64 MiB fills it within 20 ms.
const STORE_CHANGED_PART: u64 = 64;

/// The least such change.
const STORE_CHANGED_BYTES: u64 = 256 << 10;

/// When the process has grown by so much more than its faults told, its mappings are looked at as
/// if a look had found something there.
const UNTOLD_BYTES: u64 = 1 << 20;

/// A relative copies inherited pages, the engine's tables first, faster than others can make room
/// for them: 12 children at a time took 57 to 69 MiB within 48, with 640 KiB for each 60 to 63, and
/// with this reserve 52 to 54.
const RELATIVE_BYTES: u64 = 1 << 20;

/// The time between two readings of values that cost more to read, or change slowly.
const SLOW_NS: u64 = 100_000_000;

/// The same in a process that has been idle for [`IDLE_NS`], far from the limit: these readings are
/// most of what it costs.
const SLOW_IDLE_NS: u64 = 1_000_000_000;

/// The time after which a process that does nothing counts as idle.
pub(crate) const IDLE_NS: u64 = 1_000_000_000;

/// How many times longer than the last measurement of shared memory the pause before the next is,
/// at least.
const ROLLUP_PACE: u64 = 10;

/// The part of the limit that all members together may share without a discount.
const LITTLE_SHARED_PART: u64 = 256;

/// The time between two requests to others to measure.
const ASK_TO_MEASURE_NS: u64 = 2_000_000;

impl Evictor {
    /// Reads the process's size, and derives from it the charge and the faults.
    pub(crate) fn measure(&mut self) {
        let engine = self.engine;
        let now = sys::now_ns();
        let size = if engine.embedded.is_on() {
            Some(ProcessSize { anonymous: self.measure_managed(now), ..ProcessSize::default() })
        } else {
            parse_statm(read_proc(engine.descriptors.statm.load(Relaxed), &mut self.survey.text))
        };
        if let Some(size) = size {
            let faults = engine.figures().faults_served();
            if size.anonymous > self.survey.size.anonymous + (256 << 10) || faults != self.survey.faults_seen
            {
                self.survey.idle_since_ns = now;
            }
            self.survey.faults_seen = faults;
            self.survey.size = size;
        }
        let is_idle = !engine.is_engaged() && self.survey.idle_ns(now) > IDLE_NS;
        let slow = self.survey.slow_due.take(now, if is_idle { SLOW_IDLE_NS } else { SLOW_NS });
        let has_shmem = !engine.embedded.is_on();
        if has_shmem
            && (slow || self.survey.size.shared.abs_diff(self.survey.shared_seen) >= SHARED_CHANGED_BYTES)
        {
            let text = engine.read_file(ProcFile::Status, &mut self.survey.text);
            // Without an answer (perhaps no descriptor is left) the last values stand, and the next
            // round asks again.
            if let Some(shmem) = field_bytes(text, b"RssShmem:") {
                self.survey.shmem = shmem.saturating_sub(engine.shared_of_all_bytes());
                self.survey.shared_seen = self.survey.size.shared;
            }
        }
        engine.pass_epoch(&mut self.survey.epoch_due, now);
        // What has no room in the store is decided by these figures: they follow it. The resident
        // pages of an embedder are counted seldom, and its figures are of one moment.
        let stored = engine.space.store_bytes();
        let store_changed = !engine.embedded.is_on()
            && stored.abs_diff(self.survey.stored_seen)
                >= (engine.least_limit() / STORE_CHANGED_PART).max(STORE_CHANGED_BYTES);
        if slow || store_changed {
            self.survey.stored_seen = stored;
            engine.publish_gauges(self.survey.size, self.staging().held_bytes());
            engine.look_at_swap_space();
        }
        if slow {
            self.publish_own_share();
            if engine.embedded.is_on() {
                self.publish_managed();
            }
            let handler_ns = process::cpu_ns_of_thread(engine.threads.handler.load(Relaxed));
            engine.figures().raise(Counter::PagerNanoseconds, sys::thread_cpu_ns() + handler_ns);
        }
        let me = engine.member();
        self.survey.announced.expire(me, now);
        let charge = engine.charge_of(self.survey.size.anonymous) + self.counted_shmem() + self.reserve();
        // A thread that takes in memory by faults is charged for it there: this memory came past
        // them.
        if charge > me.charge_bytes.swap(charge, Relaxed).saturating_add(UNTOLD_BYTES) {
            self.survey.scans_in_vain = 0;
        }
        if engine.fork.has_relatives() {
            self.measure_sharing(now);
        }
        if slow {
            engine.look_at_pool();
        }
        self.measure_active();
        let has_some = engine.is_engaged() && now >= self.shortage.barren_until_ns;
        let evictable =
            if has_some { self.survey.size.anonymous.saturating_sub(engine.own_bytes()) } else { 0 };
        me.evictable_bytes.store(evictable, Relaxed);
        me.active.store(u32::from(self.survey.idle_ns(now) < IDLE_NS), Relaxed);
    }

    /// The bytes that a process with relatives is charged beyond what it has.
    fn reserve(&self) -> u64 {
        if self.engine.fork.has_relatives() { RELATIVE_BYTES } else { 0 }
    }

    /// The part of the process's shared memory that the limit counts: the program's, without the
    /// agent and the memories of the group.
    fn counted_shmem(&self) -> u64 {
        match self.engine.decisions().scope() {
            Scope::Total => self.survey.shmem,
            Scope::Resident => 0,
        }
    }

    /// Measures how much memory relatives share, so that it is counted once. The kernel's answer
    /// has a price: it is asked as often as a tenth of the thread's time allows (a third when
    /// memory is short and much has changed). In between, every minor fault may have made a page
    /// this process's own: the pager's own faults too, which it takes in its tables and its store.
    ///
    /// Where so little is shared that a discount is not worth it, all of it is counted, no fault
    /// needs to be looked at, and the kernel is asked a tenth as often, or after the next fork:
    /// nothing else makes it more.
    fn measure_sharing(&mut self, now: u64) {
        let engine = self.engine;
        let (group, me) = (engine.group(), engine.member());
        let header = &group.segment.header;
        me.sharing.gain_relative();
        let forks = engine.fork.freezes();
        if self.sharing.forks != forks {
            (self.sharing.forks, self.sharing.next_ns) = (forks, 0);
        }
        // Beside a child that is no member there is no discount. Pages that the program makes its
        // own are counted by the handler; the pager counts those that it makes its own, once for
        // each page that it had.
        let alone = engine.children.raw.load(Relaxed) == 0;
        let left = if alone { 0 } else { engine.children.shared_bytes.load(Relaxed) };
        let uncertain = left.max(me.sharing.discount());
        let limit = group.decisions.limit_bytes();
        let marks = Watermarks::of(limit);
        let total = group.charge_bytes();
        let soon = uncertain > 0 && total > marks.low && me.sharing.stale_bytes(header) > STALE_BYTES;
        let due = if soon { self.sharing.soonest_ns } else { self.sharing.next_ns };
        let is_due = now >= due && total >= marks.engage;
        if uncertain > 0 || is_due {
            let text = engine.read_file(ProcFile::Stat, &mut self.survey.text);
            let theirs = minor_faults(text).unwrap_or(self.survey.program_faults_seen);
            self.survey.program_faults_seen = theirs;
            let faults = theirs + process::own_minor_faults();
            let fresh = faults.saturating_sub(self.survey.minor_faults_seen) * PAGE as u64;
            self.survey.minor_faults_seen = faults;
            let ended = fresh.min(uncertain);
            engine.children.shared_bytes.store(left.saturating_sub(ended), Relaxed);
            me.sharing.end(header, ended);
        }
        if !is_due {
            return;
        }
        let before = me.sharing.before_measuring(header);
        let text = engine.read_file(ProcFile::SmapsRollup, &mut self.survey.text);
        let (resident, proportional) = (field_bytes(text, b"Anonymous:"), field_bytes(text, b"Pss_Anon:"));
        let mut pace = ROLLUP_PACE;
        if let (Some(resident), Some(proportional)) = (resident, proportional) {
            let shared = resident.saturating_sub(proportional);
            let members = group.live_members().count().max(1) as u64;
            let is_little = alone && shared <= limit / (LITTLE_SHARED_PART * members);
            if is_little {
                pace *= ROLLUP_PACE;
            }
            // Nobody counts a child that is no member before the supervisor has found it, so its
            // share is counted here.
            me.sharing.publish(before, if alone && !is_little { shared } else { 0 });
        }
        let done = sys::now_ns();
        self.sharing.next_ns = done + (pace * (done - now)).max(20_000_000);
        self.sharing.soonest_ns = done + 2 * (done - now);
    }

    /// Has those members measure anew, when memory is short, whose discounts are so old that they
    /// make the group's charge uncertain.
    pub(crate) fn have_sharing_measured(&mut self) {
        if !self.sharing.ask_to_measure_due.take(sys::now_ns(), ASK_TO_MEASURE_NS) {
            return;
        }
        let group = self.engine.group();
        for member in group.live_members() {
            if member.sharing.discount() > 0
                && member.sharing.stale_bytes(&group.segment.header) > STALE_BYTES
            {
                futex::post(&member.wake, Sharing::Shared);
            }
        }
    }
}

#[cfg(test)]
mod tests;
