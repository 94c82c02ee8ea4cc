//! The group's figures: those of ended members, those of live ones, and the highest values seen.

use folioswap_group::{
    counters::{COUNTERS, Counter, Figures, GAUGES, Gauge, ORDERS, SIZE_COUNTERS, SizeCounter},
    devices::DEVICES_MAX,
    segment::Segment,
};

/// Sums of counters.
#[derive(Clone, Debug)]
pub struct Sums {
    counters: [u64; COUNTERS],
    sizes: [[u64; ORDERS]; SIZE_COUNTERS],
}

impl Sums {
    /// All zero.
    pub const fn new() -> Self {
        Sums { counters: [0; COUNTERS], sizes: [[0; ORDERS]; SIZE_COUNTERS] }
    }

    /// Adds one member's counters.
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

    /// One counter.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters[counter as usize]
    }

    /// One counter of one folio order.
    pub fn size(&self, counter: SizeCounter, order: usize) -> u64 {
        self.sizes[counter as usize][order]
    }
}

/// Sums of gauges over the live members at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Levels([u64; GAUGES]);

impl Levels {
    /// All zero.
    pub const fn new() -> Self {
        Levels([0; GAUGES])
    }

    /// Reads those of all live members.
    pub fn read(segment: &Segment) -> Self {
        let mut levels = Levels::new();
        for member in segment.live_members() {
            for &gauge in Gauge::ALL {
                let sum = &mut levels.0[gauge as usize];
                *sum = sum.saturating_add(member.figures.gauge(gauge));
            }
        }
        levels
    }

    /// One gauge.
    pub fn gauge(&self, gauge: Gauge) -> u64 {
        self.0[gauge as usize]
    }

    /// Bytes that are held by devices, the measure of the fullest moment.
    fn held(&self) -> u64 {
        self.gauge(Gauge::OrigDataSize).saturating_add(self.gauge(Gauge::FileBytes))
    }
}

/// Everything that the report needs of the members.
#[derive(Clone, Debug)]
pub struct Totals {
    /// Counters of members that have ended.
    ended: Sums,
    /// The levels when the devices held most.
    pub fullest: Levels,
    /// Highest charge seen.
    pub peak_charge: u64,
    /// Members that there were, in all.
    pub members: u64,
    /// Most at a time.
    pub members_peak: u64,
    /// Most clusters of each shared device that were used.
    pub clusters_peak: [u32; DEVICES_MAX],
}

impl Totals {
    /// Nothing yet.
    pub const fn new() -> Self {
        Totals {
            ended: Sums::new(),
            fullest: Levels::new(),
            peak_charge: 0,
            members: 0,
            members_peak: 0,
            clusters_peak: [0; DEVICES_MAX],
        }
    }

    /// Looks at the group now. Called often, and before a member's place is released.
    pub fn sample(&mut self, segment: &Segment, clusters_used: [u32; DEVICES_MAX]) {
        self.peak_charge = self.peak_charge.max(segment.charge_bytes());
        for (peak, used) in self.clusters_peak.iter_mut().zip(clusters_used) {
            *peak = (*peak).max(used);
        }
        let levels = Levels::read(segment);
        if levels.held() > self.fullest.held() {
            self.fullest = levels;
        }
    }

    /// Counts a new member.
    pub fn began(&mut self, segment: &Segment) {
        self.members += 1;
        let live = segment.live_members().count() as u64;
        self.members_peak = self.members_peak.max(live);
    }

    /// Adds to a counter what is no member's.
    pub fn add(&mut self, counter: Counter, count: u64) {
        self.ended.counters[counter as usize] += count;
    }

    /// Takes over the counters of a member before its place is released.
    pub fn ended(&mut self, figures: &Figures) {
        self.ended.add(figures);
    }

    /// Counters of all members, ended and live.
    pub fn sums(&self, segment: &Segment) -> Sums {
        let mut sums = self.ended.clone();
        for member in segment.live_members() {
            sums.add(&member.figures);
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipc::mapped::SegmentFile;

    #[test]
    fn counters_outlive_their_member_and_gauges_do_not() {
        let segment = SegmentFile::create().expect("memfd");
        let mut totals = Totals::new();
        let id = segment.mapped.assign(1).expect("free place");
        totals.began(&segment.mapped);
        let figures = &segment.mapped.members[id as usize].figures;
        figures.add(Counter::PagesOut, 5);
        figures.add_size(SizeCounter::SwapOut, 4, 2);
        figures.set(Gauge::OrigDataSize, 100);
        let mut clusters_used = [0; DEVICES_MAX];
        clusters_used[1] = 3;
        totals.sample(&segment.mapped, clusters_used);
        totals.sample(&segment.mapped, [0; DEVICES_MAX]);
        totals.ended(figures);
        segment.mapped.release(id);
        assert_eq!(totals.sums(&segment.mapped).counter(Counter::PagesOut), 5);
        assert_eq!(totals.sums(&segment.mapped).size(SizeCounter::SwapOut, 4), 2);
        assert_eq!(Levels::read(&segment.mapped).gauge(Gauge::OrigDataSize), 0);
        assert_eq!(totals.fullest.gauge(Gauge::OrigDataSize), 100);
        assert_eq!((totals.members, totals.members_peak, totals.clusters_peak[1]), (1, 1, 3));
    }
}
