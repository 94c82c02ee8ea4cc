//! The counters of a group.

use folioswap_group::{
    counters::{COUNTERS, Counter, ORDERS, SIZE_COUNTERS, SizeCounter},
    group::Group,
};

/// Readings that are tried until one has no member that ends in its midst.
const TRIES: u32 = 16;

/// The counters of a group, summed over all members that it has and had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    counters: [u64; COUNTERS],
    sizes: [[u64; ORDERS]; SIZE_COUNTERS],
}

impl Counters {
    /// Reads the counters. Each member counts once, also one that ends meanwhile, unless members
    /// end faster than all are read, sixteen times in a row.
    pub fn read(group: Group<'_>) -> Self {
        for _ in 0..TRIES {
            let before = group.decisions.ended_changes();
            let read = Counters::read_once(group);
            if before.is_multiple_of(2) && group.decisions.ended_changes() == before {
                return read;
            }
            std::hint::spin_loop();
        }
        Counters::read_once(group)
    }

    fn read_once(group: Group<'_>) -> Self {
        let mut read = Counters { counters: [0; COUNTERS], sizes: [[0; ORDERS]; SIZE_COUNTERS] };
        for &counter in Counter::ALL {
            let live = group.live_members().map(|member| member.figures.counter(counter));
            read.counters[counter as usize] =
                live.fold(group.decisions.ended_counter(counter), u64::saturating_add);
        }
        for &counter in SizeCounter::ALL {
            for (order, sum) in read.sizes[counter as usize].iter_mut().enumerate() {
                let live = group.live_members().map(|member| member.figures.size(counter, order));
                *sum = live.fold(group.decisions.ended_size(counter, order), u64::saturating_add);
            }
        }
        read
    }

    /// One counter.
    pub fn get(&self, counter: Counter) -> u64 {
        self.counters[counter as usize]
    }

    /// One counter of one folio order (0 to 9).
    pub fn size(&self, counter: SizeCounter, order: usize) -> u64 {
        self.sizes[counter as usize][order]
    }
}
