//! What the evictor measures: the process's size, what of it counts, and what is shared with relatives.

use crate::account::{field_bytes, minor_faults, parse_statm, read_proc, read_proc_path};
use crate::evictor::Evictor;
use crate::staging::FOLIO;
use crate::sys;
use core::sync::atomic::Ordering::Relaxed;
use folioswap_core::page_table::PAGE;
use folioswap_group::counters::Counter;
use folioswap_group::segment::Scope;

impl Evictor {
    /// Reads the process's size, and what is derived from it.
    pub(crate) fn measure(&mut self) {
        let engine = self.engine;
        let now = sys::now_ns();
        let text = read_proc(engine.descriptors.statm.load(Relaxed), &mut self.text);
        if let Some(size) = parse_statm(text) {
            let faults = engine.figures().counter(Counter::MajorFaults)
                + engine.figures().counter(Counter::MinorFaults);
            if size.anonymous > self.size.anonymous + (256 << 10) || faults != self.faults_seen {
                self.idle_since_ns = now;
            }
            self.faults_seen = faults;
            self.size = size;
        }
        if now >= self.slow_next_ns {
            self.slow_next_ns = now + 100_000_000;
            let text = read_proc_path(c"/proc/self/status", &mut self.text);
            self.shmem = field_bytes(text, b"RssShmem:").unwrap_or(0);
            engine.epoch.store((now >> 30) as u32, Relaxed);
            // SAFETY: the evictor alone uses the ring outside of the write-back lock's sections.
            let staging = unsafe { &*engine.staging.get() };
            engine.publish_gauges(self.size, staging.occupied() * FOLIO as u64);
            engine.look_at_swap_space();
            engine.figures().raise(Counter::PagerNanoseconds, sys::thread_cpu_ns());
        }
        if engine.fork.has_relatives() {
            self.measure_sharing(now);
        }
        let charge = engine.charge_of(self.size.anonymous) + self.own_shmem();
        let me = engine.member();
        me.charge_bytes.store(charge.saturating_sub(self.fork_discount), Relaxed);
        let has_some = engine.is_engaged() && now >= self.barren_until_ns;
        let evictable = if has_some { self.size.anonymous.saturating_sub(engine.own_bytes()) } else { 0 };
        me.evictable_bytes.store(evictable, Relaxed);
        me.active.store(u32::from(now - self.idle_since_ns < 1_000_000_000), Relaxed);
    }

    /// The program's shared memory, without the group's segment.
    fn own_shmem(&self) -> u64 {
        match self.engine.segment().scope() {
            Scope::Total => self.shmem.saturating_sub(64 << 10),
            Scope::Resident => 0,
        }
    }

    /// After a fork, pages shared with relatives are counted once, by proportional size. That is read as often as a tenth
    /// of the thread's time allows (a third when much has changed); in between, every minor fault may have made a page
    /// our own.
    pub(crate) fn measure_sharing(&mut self, now: u64) {
        let text = read_proc_path(c"/proc/self/stat", &mut self.text);
        let faults = minor_faults(text).unwrap_or(self.faults_at_rollup);
        let unshared = faults.saturating_sub(self.faults_at_rollup) * PAGE as u64;
        let due = if unshared > 4 << 20 { self.rollup_soonest_ns } else { self.rollup_next_ns };
        if now < due {
            self.fork_discount = self.discount_at_rollup.saturating_sub(unshared);
            return;
        }
        let text = read_proc_path(c"/proc/self/smaps_rollup", &mut self.text);
        let (resident, proportional) = (field_bytes(text, b"Anonymous:"), field_bytes(text, b"Pss_Anon:"));
        if let (Some(resident), Some(proportional)) = (resident, proportional) {
            self.discount_at_rollup = resident.saturating_sub(proportional);
            self.fork_discount = self.discount_at_rollup;
            self.faults_at_rollup = faults;
        }
        let done = sys::now_ns();
        self.rollup_next_ns = done + (10 * (done - now)).max(20_000_000);
        self.rollup_soonest_ns = done + 2 * (done - now);
    }
}
