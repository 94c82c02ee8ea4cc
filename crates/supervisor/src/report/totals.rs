//! The figures of the group: those of ended members, those of live ones, and the highest values
//! seen.

use folioswap_group::{
    counters::{COUNTERS, Counter, Figures, GAUGES, Gauge, ORDERS, SIZE_COUNTERS, SizeCounter},
    devices::DEVICES_MAX,
    group::Group,
};

/// Sums of counters over members.
#[derive(Clone, Debug)]
pub struct Sums {
    counters: [u64; COUNTERS],
    sizes: [[u64; ORDERS]; SIZE_COUNTERS],
}

impl Sums {
    /// Sums that are all zero.
    pub(crate) const fn new() -> Self {
        Sums { counters: [0; COUNTERS], sizes: [[0; ORDERS]; SIZE_COUNTERS] }
    }

    /// Adds the counters of one member.
    pub fn add(&mut self, figures: &Figures) {
        for &counter in Counter::ALL {
            let sum = &mut self.counters[counter as usize];
            *sum = sum.saturating_add(figures.counter(counter));
        }
        for &counter in SizeCounter::ALL {
            for (order, sum) in self.sizes[counter as usize].iter_mut().enumerate() {
                *sum = sum.saturating_add(figures.size(counter, order));
            }
        }
    }

    /// The sum of one counter.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters[counter as usize]
    }

    /// The sum of one counter of one folio order.
    pub fn size(&self, counter: SizeCounter, order: usize) -> u64 {
        self.sizes[counter as usize][order]
    }
}

/// Sums of gauges over the live members at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Levels([u64; GAUGES]);

impl Levels {
    /// Levels that are all zero.
    pub(crate) const fn new() -> Self {
        Levels([0; GAUGES])
    }

    /// Reads the gauges of all live members.
    pub fn read(group: Group<'_>) -> Self {
        let mut levels = Levels::new();
        for member in group.live_members() {
            for &gauge in Gauge::ALL {
                let sum = &mut levels.0[gauge as usize];
                *sum = sum.saturating_add(member.figures.gauge(gauge));
            }
        }
        levels
    }

    /// The sum of one gauge.
    pub fn gauge(&self, gauge: Gauge) -> u64 {
        self.0[gauge as usize]
    }

    /// The bytes that devices hold, by which the fullest moment is judged.
    fn held(&self) -> u64 {
        self.gauge(Gauge::OrigDataSize).saturating_add(self.gauge(Gauge::FileBytes))
    }
}

/// The part of the report that concerns members.
#[derive(Clone, Debug)]
pub struct Totals {
    /// The counters of members that have ended.
    ended: Sums,
    /// The levels at the moment when the devices held most.
    pub fullest: Levels,
    /// The highest charge seen, in bytes.
    pub peak_charge: u64,
    /// The number of members that there were in all.
    pub members: u64,
    /// The most members at one time.
    pub members_peak: u64,
    /// The most clusters in use on each shared device, by device number.
    pub clusters_peak: [u32; DEVICES_MAX],
}

impl Totals {
    /// The totals of a group that has had no member.
    pub(crate) const fn new() -> Self {
        Totals {
            ended: Sums::new(),
            fullest: Levels::new(),
            peak_charge: 0,
            members: 0,
            members_peak: 0,
            clusters_peak: [0; DEVICES_MAX],
        }
    }

    /// Takes the levels of the group now into account. Must be called often, and before the place
    /// of a member is released.
    pub fn sample(&mut self, group: Group<'_>, clusters_used: [u32; DEVICES_MAX]) {
        self.peak_charge = self.peak_charge.max(group.charge_bytes());
        for (peak, used) in self.clusters_peak.iter_mut().zip(clusters_used) {
            *peak = (*peak).max(used);
        }
        let levels = Levels::read(group);
        if levels.held() > self.fullest.held() {
            self.fullest = levels;
        }
    }

    /// Counts a new member.
    pub fn began(&mut self, group: Group<'_>) {
        self.members += 1;
        let live = group.live_members().count() as u64;
        self.members_peak = self.members_peak.max(live);
    }

    /// Adds to a counter events that belong to no member.
    pub fn add(&mut self, counter: Counter, count: u64) {
        self.ended.counters[counter as usize] += count;
    }

    /// Takes over the counters of a member. Must be called before its place is released.
    pub fn ended(&mut self, figures: &Figures) {
        self.ended.add(figures);
    }

    /// The counters of all members, ended and live.
    pub fn sums(&self, group: Group<'_>) -> Sums {
        let mut sums = self.ended.clone();
        for member in group.live_members() {
            sums.add(&member.figures);
        }
        sums
    }
}

#[cfg(test)]
mod tests;
