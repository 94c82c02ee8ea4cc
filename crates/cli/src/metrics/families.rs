//! The metrics and their names.
//!
//! All of it is built anew for each reading, so a group that has ended leaves nothing behind.

use crate::operate::{mounts::MountSnapshot, users};
use folioswap_group::counters::Counter as Event;
use folioswap_supervisor::view::{GroupSnapshot, State};
use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeMetric, text},
    metrics::{TypedMetric, counter::Counter, family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};
use std::sync::atomic::AtomicU64;

/// Whose figure it is.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfGroup {
    group: String,
    pid: u32,
    user: String,
}

/// A part of a group's memory.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfPart {
    group: String,
    pid: u32,
    part: &'static str,
}

/// A state of pressure.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfState {
    group: String,
    pid: u32,
    state: &'static str,
}

/// An average of it.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfAverage {
    group: String,
    pid: u32,
    state: &'static str,
    window: &'static str,
}

/// A device of a group, or of a mount.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfDevice {
    owner: String,
    device: String,
    kind: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfMount {
    mount: String,
    user: String,
}

type Number<L> = Family<L, Gauge<f64, AtomicU64>>;
type Count<L> = Family<L, Counter<f64, AtomicU64>>;

/// What tells the subjects of a family apart.
trait Label: Clone + std::hash::Hash + Eq + EncodeLabelSet + std::fmt::Debug + Send + Sync + 'static {}

impl<L: Clone + std::hash::Hash + Eq + EncodeLabelSet + std::fmt::Debug + Send + Sync + 'static> Label for L {}

/// A family of metrics over these subjects, registered; `set` gives each its value.
fn family<'s, S: 's, L, M>(
    registry: &mut Registry,
    (name, help, unit): (&str, &str, Option<Unit>),
    subjects: impl IntoIterator<Item = &'s S>,
    label: impl Fn(&S) -> L,
    set: impl Fn(&M, &S),
) where
    L: Label,
    M: Default + EncodeMetric + TypedMetric + std::fmt::Debug + Send + Sync + 'static,
{
    let family = Family::<L, M>::default();
    for subject in subjects {
        set(&family.get_or_create(&label(subject)), subject);
    }
    match unit {
        Some(unit) => registry.register_with_unit(name, help, unit, family),
        None => registry.register(name, help, family),
    }
}

/// A family of gauges.
fn gauges<'s, S: 's, L: Label>(
    registry: &mut Registry,
    what: (&str, &str, Option<Unit>),
    subjects: impl IntoIterator<Item = &'s S>,
    label: impl Fn(&S) -> L,
    value: impl Fn(&S) -> f64,
) {
    family(registry, what, subjects, label, |gauge: &Gauge<f64, AtomicU64>, subject| {
        gauge.set(value(subject));
    });
}

/// A family of counters.
fn counts<'s, S: 's, L: Label>(
    registry: &mut Registry,
    what: (&str, &str, Option<Unit>),
    subjects: impl IntoIterator<Item = &'s S>,
    label: impl Fn(&S) -> L,
    value: impl Fn(&S) -> f64,
) {
    family(registry, what, subjects, label, |counter: &Counter<f64, AtomicU64>, subject| {
        counter.inc_by(value(subject));
    });
}

/// The counters of a group, their names here, and what they count. Times are in seconds.
const EVENTS: [(Event, &str, &str); 20] = [
    (Event::PagesOut, "pswpout", "Pages of 4 KiB written out to swap"),
    (Event::PagesIn, "pswpin", "Pages of 4 KiB read back from swap"),
    (Event::MajorFaults, "pgmajfault", "Faults that had to read a device"),
    (Event::MinorFaults, "pgfault_minor", "Faults served without reading a device"),
    (Event::ScannedBackground, "pgscan_kswapd", "Pages scanned by background evictors"),
    (Event::StolenBackground, "pgsteal_kswapd", "Pages evicted by background evictors"),
    (Event::StolenDirect, "pgsteal_direct", "Pages compressed by threads that waited for memory"),
    (Event::DirectReclaims, "allocstall", "Faults that had to wait for memory"),
    (Event::Activated, "pgactivate", "Pages that were touched while they waited, and went back as hot"),
    (Event::WorkingsetRefault, "workingset_refault_anon", "Pages that came back after a known time away"),
    (Event::WorkingsetActivate, "workingset_activate_anon", "Refaults of pages of the working set"),
    (Event::SwapCacheHits, "swap_cache_hits", "Pages found in the swap cache at a fault"),
    (Event::Poisoned, "pages_poisoned", "Pages that could not be read back and were poisoned"),
    (Event::WriteErrors, "device_write_errors", "Writes that a device refused; no page is lost"),
    (Event::SwapoffPages, "swapoff_pages", "Pages that moved because their device was taken out of use"),
    (Event::FilePagesOut, "file_pswpout", "Pages written to files and devices"),
    (Event::FilePagesIn, "file_pswpin", "Pages read from files and devices"),
    (Event::PagesReadAhead, "swap_ra", "Pages read ahead"),
    (Event::ReadAheadHits, "swap_ra_hit", "Faults that found their page read ahead"),
    (Event::Forks, "forks", "Forks taken over by an engine of the child's own"),
];

/// All figures in the OpenMetrics text format.
pub fn encode(groups: &[GroupSnapshot], mounts: &[MountSnapshot]) -> String {
    let mut registry = Registry::with_prefix("folioswap");
    of_groups(&mut registry, groups);
    of_mounts(&mut registry, mounts);
    of_devices(&mut registry, groups, mounts);
    let mut encoded = String::new();
    // A String takes everything.
    let _ = text::encode(&mut encoded, &registry);
    encoded
}

fn of_groups(registry: &mut Registry, groups: &[GroupSnapshot]) {
    let label = |group: &GroupSnapshot| OfGroup {
        group: group.name.clone(),
        pid: group.pid,
        user: users::name(group.owner),
    };
    let bytes = || Some(Unit::Bytes);
    let figure = |get: fn(&GroupSnapshot) -> u64| move |group: &GroupSnapshot| get(group) as f64;
    let head = |name, help| (name, help, bytes());
    gauges(
        registry,
        head("group_limit", "The limit of the group"),
        groups,
        label,
        figure(|group| group.limit),
    );
    gauges(
        registry,
        head("group_charge", "What counts towards the limit"),
        groups,
        label,
        figure(|group| group.charge),
    );
    gauges(
        registry,
        head("group_swapped", "Memory that is swapped out"),
        groups,
        label,
        figure(|group| group.swapped),
    );
    gauges(
        registry,
        head("group_stored", "Uncompressed size of what is in the compressed stores"),
        groups,
        label,
        figure(|group| group.stored),
    );
    gauges(
        registry,
        ("group_members", "Processes with an agent", None),
        groups,
        label,
        figure(|group| group.members.len() as u64),
    );
    gauges(
        registry,
        ("group_frozen", "1 while the group is frozen", None),
        groups,
        label,
        figure(|group| u64::from(group.state == State::Frozen)),
    );
    gauges(
        registry,
        ("group_start_time", "When the group began, since 1970", Some(Unit::Seconds)),
        groups,
        label,
        figure(|group| group.started_unix),
    );
    parts(registry, groups);
    pressure(registry, groups);
    for (event, name, help) in EVENTS {
        counts(registry, (name, help, None), groups, label, |group: &GroupSnapshot| {
            group.counters.get(event) as f64
        });
    }
    counts(
        registry,
        ("fault_wait", "Time that threads waited for pages, added up", Some(Unit::Seconds)),
        groups,
        label,
        |group: &GroupSnapshot| group.wait_time().as_secs_f64(),
    );
    counts(
        registry,
        ("pager_cpu", "Processor time of the pager threads", Some(Unit::Seconds)),
        groups,
        label,
        |group: &GroupSnapshot| group.pager_time().as_secs_f64(),
    );
}

fn parts(registry: &mut Registry, groups: &[GroupSnapshot]) {
    let family = Number::<OfPart>::default();
    for group in groups {
        let parts = group.parts;
        let of = [
            ("resident", parts.resident),
            ("store", parts.store),
            ("staging", parts.staging),
            ("tables", parts.tables),
            ("unmanaged", parts.unmanaged),
            ("devices", parts.devices),
        ];
        for (part, bytes) in of {
            let label = OfPart { group: group.name.clone(), pid: group.pid, part };
            family.get_or_create(&label).set(bytes as f64);
        }
    }
    registry.register_with_unit("group_memory", "The memory of the group by its parts", Unit::Bytes, family);
}

/// Pressure stall information: as node_exporter has the kernel's, with the averages beside it.
fn pressure(registry: &mut Registry, groups: &[GroupSnapshot]) {
    let (averages, totals) = (Number::<OfAverage>::default(), Count::<OfState>::default());
    for group in groups {
        let pressure = group.pressure;
        let of = [
            ("some", pressure.some, pressure.some_total_us),
            ("full", pressure.full, pressure.full_total_us),
        ];
        for (state, avg, total_us) in of {
            let label = OfState { group: group.name.clone(), pid: group.pid, state };
            totals.get_or_create(&label).inc_by(total_us as f64 / 1e6);
            for (window, avg) in ["10", "60", "300"].into_iter().zip(avg) {
                let label = OfAverage { group: group.name.clone(), pid: group.pid, state, window };
                averages.get_or_create(&label).set(f64::from(avg) / 1e4);
            }
        }
    }
    let help = "Share of time in which a thread (some) or all (full) waited for memory, over WINDOW seconds";
    registry.register_with_unit("group_pressure", help, Unit::Ratios, averages);
    let help = "Time in which a thread (some) or all (full) waited for memory";
    registry.register_with_unit("group_pressure_stall", help, Unit::Seconds, totals);
}

fn of_mounts(registry: &mut Registry, mounts: &[MountSnapshot]) {
    let label = |mount: &MountSnapshot| OfMount {
        mount: mount.directory.to_string_lossy().into_owned(),
        user: users::name(mount.owner),
    };
    let head = |name, help| (name, help, Some(Unit::Bytes));
    let figure = |name: &'static str| move |mount: &MountSnapshot| mount.get(name) as f64;
    gauges(
        registry,
        head("mount_limit", "The limit of daemon and page cache"),
        mounts,
        label,
        figure("memory"),
    );
    gauges(
        registry,
        head("mount_charge", "What counts towards it at most"),
        mounts,
        label,
        |mount: &MountSnapshot| mount.charge() as f64,
    );
    gauges(registry, head("mount_content", "Contents, resident or not"), mounts, label, figure("content"));
    gauges(registry, head("mount_size", "The most contents"), mounts, label, figure("content_max"));
    gauges(
        registry,
        head("mount_stored", "Contents in the compressed store, uncompressed"),
        mounts,
        label,
        figure("stored"),
    );
    gauges(registry, head("mount_store", "Memory of the compressed store"), mounts, label, figure("store"));
    gauges(
        registry,
        head("mount_on_device", "Contents on files and devices"),
        mounts,
        label,
        figure("on_file"),
    );
    gauges(
        registry,
        ("mount_inodes", "Files, directories and other inodes", None),
        mounts,
        label,
        figure("inodes"),
    );
    for (name, key, help) in [
        ("mount_pswpout", "pswpout", "Pages of 4 KiB written out to swap"),
        ("mount_pswpin", "pswpin", "Pages of 4 KiB read back from swap"),
        ("mount_pgmajfault", "pgmajfault", "Accesses that waited for swap"),
    ] {
        counts(registry, (name, help, None), mounts, label, figure(key));
    }
}

fn of_devices(registry: &mut Registry, groups: &[GroupSnapshot], mounts: &[MountSnapshot]) {
    let (size, used, errors) =
        (Number::<OfDevice>::default(), Number::<OfDevice>::default(), Count::<OfDevice>::default());
    for group in groups {
        for device in &group.devices {
            let label = OfDevice {
                owner: format!("{} ({})", group.name, group.pid),
                device: device.name.clone(),
                kind: device.kind.name().to_owned(),
            };
            // One that grows within the limit has no size.
            if let Some(bytes) = device.size {
                size.get_or_create(&label).set(bytes as f64);
            }
            used.get_or_create(&label).set(device.used as f64);
            errors.get_or_create(&label).inc_by(f64::from(device.errors));
        }
    }
    for mount in mounts {
        for (name, kind, bytes, in_use, _) in mount.devices() {
            let label =
                OfDevice { owner: mount.directory.to_string_lossy().into_owned(), device: name, kind };
            if bytes > 0 {
                size.get_or_create(&label).set(bytes as f64);
            }
            used.get_or_create(&label).set(in_use as f64);
        }
    }
    registry.register_with_unit("device_size", "The most that a swap device takes", Unit::Bytes, size);
    registry.register_with_unit("device_used", "What a swap device has", Unit::Bytes, used);
    registry.register("device_errors", "Reads and writes that failed for good", errors);
}
