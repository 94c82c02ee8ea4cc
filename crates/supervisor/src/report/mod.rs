//! The report of `--stats`, `--stats-json` and `advise`, written when CMD has ended.

mod advice;
pub mod outcome;
pub mod outputs;
mod page;
mod summary;
pub mod table;
pub mod timeline;
pub mod totals;

use self::{
    outcome::Outcome,
    table::{Device, Health, Sizes},
    totals::{Levels, Sums, Totals},
};
use crate::{course::curve::Refaulted, processes::census::Unmanaged, recording::Recorded, size, view};
use folioswap_group::{
    counters::{Counter, Gauge, ORDERS, SIZE_NAMES, SizeCounter},
    decisions::{Pressure, Scope, Way},
    devices::DeviceKind,
    group::Group,
    moments::{LATENCY_BUCKETS, latency_bucket_start_ns},
    refaults::refault_bucket_start,
    segment::CLUSTER_BYTES,
};
use serde_json::{Map, Value, json};
use std::{fmt::Write, mem::MaybeUninit, path::PathBuf, time::Duration};

/// Faults by the time that they took, for those times that any took.
fn latency(counts: &[u64; LATENCY_BUCKETS]) -> Vec<Value> {
    let counts = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    counts
        .map(|(bucket, count)| json!({ "from_ns": latency_bucket_start_ns(bucket), "faults": count }))
        .collect()
}

/// What is printed when CMD has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Printed {
    /// Nothing.
    Nothing,
    /// The ten lines of `--stats`.
    Summary,
    /// Every counter: `--stats=all`.
    All,
    /// The table of `advise`.
    Advice,
}

/// The data of a report.
pub struct Report {
    /// How CMD ended.
    pub outcome: Outcome,
    /// The limit in bytes.
    pub limit: u64,
    /// The memory that the limit counts.
    pub scope: Scope,
    /// How forked children got a userfaultfd.
    pub way: Way,
    /// The time from the start of `run` to the end of CMD.
    pub wall: Duration,
    /// The counters of all members, ended and live.
    pub sums: Sums,
    /// The gauges now, of members that outlive CMD.
    pub now: Levels,
    /// The highest values.
    pub totals: Totals,
    /// The devices; USED is the highest value.
    pub devices: Vec<Device>,
    /// The bytes in use on each device now, in the order of `devices`.
    pub devices_now: Vec<u64>,
    /// Descendants without an agent.
    pub unmanaged: Vec<Unmanaged>,
    /// The most bytes that they took together, supervisor and front included.
    pub unmanaged_peak: u64,
    /// The summary of the recording of `--trace`.
    pub recorded: Option<Recorded>,
    /// The pages that came back, by distance.
    pub refaulted: Refaulted,
    /// Faults by the time that they took.
    pub latency: [u64; LATENCY_BUCKETS],
    /// Pressure stall information when CMD ended.
    pub pressure: Pressure,
}

impl Report {
    /// The devices at their fullest, in the order of use, and the bytes in use on each of them now.
    pub fn devices(group: Group<'_>, totals: &Totals, names: &[PathBuf]) -> (Vec<Device>, Vec<u64>) {
        let now = table::devices(group.decisions, &Levels::read(group), names);
        let used_now = now.iter().map(|(_, device)| device.used).collect();
        let at_most = |(number, mut device): (usize, Device)| {
            let fullest = &totals.fullest;
            let highest = match device.kind {
                DeviceKind::Zram => fullest.gauge(Gauge::MemUsedMax).max(fullest.gauge(Gauge::MemUsedTotal)),
                DeviceKind::Ram | DeviceKind::File | DeviceKind::Block | DeviceKind::Nbd => {
                    u64::from(totals.clusters_peak[number]) * CLUSTER_BYTES
                }
            };
            device.used = device.used.max(highest);
            device
        };
        (now.into_iter().map(at_most).collect(), used_now)
    }

    /// The report as JSON.
    pub fn json(&self) -> Value {
        let (user, system) = times();
        // The kernel has counters for PMD-sized folios that are older than those by size (spec
        // §3.6).
        let huge =
            [("thp_swpout", SizeCounter::SwapOut), ("thp_swpout_fallback", SizeCounter::SwapOutFallback)];
        let counters: Map<String, Value> = Counter::ALL
            .iter()
            .map(|&counter| (counter.name().to_owned(), json!(self.sums.counter(counter))))
            .chain(huge.map(|(name, counter)| (name.to_owned(), json!(self.sums.size(counter, ORDERS - 1)))))
            .collect();
        let sizes: Map<String, Value> = (0..ORDERS)
            .map(|order| {
                let of_size: Map<String, Value> = SizeCounter::ALL
                    .iter()
                    .map(|&counter| (counter.name().to_owned(), json!(self.sums.size(counter, order))))
                    .collect();
                (SIZE_NAMES[order].to_owned(), Value::Object(of_size))
            })
            .collect();
        let levels = |levels: &Levels| -> Map<String, Value> {
            Gauge::ALL.iter().map(|&gauge| (gauge.name().to_owned(), json!(levels.gauge(gauge)))).collect()
        };
        let devices: Vec<Value> = self
            .devices
            .iter()
            .zip(&self.devices_now)
            .map(|(device, now)| {
                json!({
                    "name": device.name, "type": device.kind.name(), "size_bytes": device.size,
                    "used_bytes": now, "used_peak_bytes": device.used, "prio": device.prio,
                    "errors": device.errors, "failed": device.health == Health::Failed,
                    "masked": device.health == Health::Masked,
                })
            })
            .collect();
        let distances = self.refaulted.distances.iter().enumerate().filter(|(_, count)| **count > 0);
        let distances: Vec<Value> = distances
            .map(|(bucket, count)| json!({ "from_pages": refault_bucket_start(bucket), "pages": count }))
            .collect();
        let latency = latency(&self.latency);
        json!({
            "end": self.outcome.name(),
            "status": self.outcome.status(),
            "signal": self.outcome.signal(),
            "limit_bytes": self.limit,
            "scope": self.scope.name(),
            "peak_charge_bytes": self.totals.peak_charge,
            "wall_seconds": self.wall.as_secs_f64(),
            "user_seconds": user.as_secs_f64(),
            "system_seconds": system.as_secs_f64(),
            "members": self.totals.members,
            "members_peak": self.totals.members_peak,
            "way": self.way.name(),
            "forks": self.sums.counter(Counter::Forks),
            "raw_forks": self.sums.counter(Counter::RawForks),
            "unmanaged": {
                "processes": self.unmanaged.iter().map(|entry| entry.processes).sum::<u64>(),
                "peak_bytes": self.unmanaged_peak,
                "programs": self.unmanaged,
            },
            "trace": self.recorded,
            "devices": devices,
            "ratio": self.ratio(),
            "refaults": {
                "evictions": self.refaulted.evictions,
                "distances": distances,
                "curve": self.refaulted.points(),
                "runs_well_bytes": self.refaulted.runs_well(),
            },
            "fault_latency": latency,
            "pressure": view::json::pressure(&self.pressure),
            "counters": counters,
            "sizes": sizes,
            "levels": levels(&self.now),
            "levels_fullest": levels(&self.totals.fullest),
        })
    }

    /// What is printed, as text for people.
    pub fn printed(&self, printed: Printed) -> Option<String> {
        match printed {
            Printed::Nothing => None,
            Printed::Summary => Some(self.summary()),
            Printed::All => Some(self.text()),
            Printed::Advice => Some(self.advice()),
        }
    }

    /// Every counter, as text for people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text).expect("a String takes everything");
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        let (user, system) = times();
        let seconds = |time: Duration| time.as_secs_f64();
        writeln!(text, "folioswap: {}", self.outcome)?;
        writeln!(
            text,
            "{:<22}{:.2} s (user {:.2} s, system {:.2} s)",
            "wall time",
            seconds(self.wall),
            seconds(user),
            seconds(system)
        )?;
        writeln!(text, "{:<22}{} ({})", "limit", size::show(self.limit), self.scope.name())?;
        writeln!(text, "{:<22}{}", "peak charge", size::show(self.totals.peak_charge))?;
        let fullest = &self.totals.fullest;
        let (original, used) = (fullest.gauge(Gauge::OrigDataSize), fullest.gauge(Gauge::MemUsedTotal));
        if let Some(ratio) = self.ratio() {
            writeln!(
                text,
                "{:<22}{} in {} (ratio {ratio:.2})",
                "compressed at most",
                size::show(original),
                size::show(used)
            )?;
        }
        let (members, at_once) = (self.totals.members, self.totals.members_peak);
        let forks = self.sums.counter(Counter::Forks);
        writeln!(text, "{:<22}{members} (at most {at_once} at a time), {forks} forks", "members")?;
        if let Some(recorded) = &self.recorded {
            writeln!(text, "{:<22}{} events of {} members", "trace", recorded.events, recorded.members)?;
        }
        for entry in &self.unmanaged {
            let kind = serde_json::to_value(entry.reason).unwrap_or_default();
            let (name, count, peak) = (&entry.name, entry.processes, size::show(entry.peak_bytes));
            writeln!(
                text,
                "{:<22}{name} ({}), {count} processes, at most {peak} each",
                "unmanaged",
                kind.as_str().unwrap_or("other")
            )?;
        }
        writeln!(text, "\n{}", table::render(&self.devices, Sizes::Readable).trim_end())?;
        writeln!(text, "(USED: at most)\n")?;
        for &counter in Counter::ALL {
            writeln!(text, "{:<28}{}", counter.name(), self.sums.counter(counter))?;
        }
        for (order, name) in SIZE_NAMES.iter().enumerate() {
            for &counter in SizeCounter::ALL {
                let count = self.sums.size(counter, order);
                if count > 0 {
                    writeln!(text, "{:<28}{count}", format!("{name}/{}", counter.name()))?;
                }
            }
        }
        Ok(())
    }

    /// Uncompressed bytes per byte of memory when the store was fullest; `None` when nothing was
    /// stored.
    fn ratio(&self) -> Option<f64> {
        let fullest = &self.totals.fullest;
        let used = fullest.gauge(Gauge::MemUsedTotal);
        (used > 0).then(|| fullest.gauge(Gauge::OrigDataSize) as f64 / used as f64)
    }
}

/// The processor time of all processes that were started and have ended: user and system.
fn times() -> (Duration, Duration) {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: getrusage writes the structure; all zeroes are valid should it fail.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    (time(usage.ru_utime), time(usage.ru_stime))
}
