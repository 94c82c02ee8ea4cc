//! Which clusters (2 MiB each) of the file and plain RAM devices are used. The engines of one `Swap` and of the groups within it are the only
//! owners, each of its own, so there is no count: a cluster is granted, and given back.

use crate::device::Prepared;
use folioswap_devices::create::{Reserve, reserve};
use folioswap_group::devices::{DeviceDescription, DeviceKind};
use folioswap_group::segment::{CLUSTER_BYTES, Segment};
use rustix::fd::BorrowedFd;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use std::sync::atomic::Ordering::Relaxed;

/// The clusters of one device.
struct Area {
    number: usize,
    description: DeviceDescription,
    used: Vec<bool>,
    used_count: u32,
    /// No free cluster is below it.
    lowest_free: usize,
    /// Clusters that the file is long.
    length: usize,
    /// Counts up with each grant: of equals, the one with the lowest is next.
    turn: u64,
}

/// The devices' files, as the calling thread has them: each thread that grants has a descriptor table of its own.
pub(crate) trait Files {
    /// That of the device of this number, which has clusters.
    fn of(&self, number: usize) -> BorrowedFd<'_>;
}

/// All of them.
pub(crate) struct Clusters {
    areas: Vec<Area>,
    turns: u64,
}

impl Clusters {
    /// All free.
    pub(crate) fn new(devices: &[Prepared]) -> Self {
        let areas = devices.iter().enumerate();
        let area = |(number, device): (usize, &Prepared)| {
            device.file.as_ref()?;
            Some(Area {
                number,
                description: device.description,
                used: vec![false; device.description.clusters as usize],
                used_count: 0,
                lowest_free: 0,
                length: 0,
                turn: 0,
            })
        };
        Clusters { areas: areas.filter_map(area).collect(), turns: 0 }
    }

    /// Grants up to `count` clusters of the `wanted` devices (a bit each): by priority, equals in turn, of each the lowest. Says in the segment
    /// which devices are full. `files` are those of the devices, by number, in the table of the calling thread.
    pub(crate) fn grant(
        &mut self,
        segment: &Segment,
        files: &impl Files,
        wanted: u64,
        count: usize,
    ) -> Vec<u32> {
        let (mut granted, mut wanted) = (Vec::new(), wanted);
        while granted.len() < count {
            let candidates = self.areas.iter_mut().filter(|area| wanted >> area.number & 1 != 0);
            let Some(area) =
                candidates.min_by_key(|area| (std::cmp::Reverse(area.description.priority), area.turn))
            else {
                break;
            };
            match area.take(files.of(area.number)) {
                Ok(cluster) => {
                    self.turns += 1;
                    area.turn = self.turns;
                    granted.push(cluster);
                }
                Err(_) => {
                    wanted &= !(1 << area.number);
                    segment.devices[area.number].full.store(1, Relaxed);
                }
            }
        }
        // Those of one process have one owner.
        for &cluster in &granted {
            segment.cluster_owners[cluster as usize].store(1, Relaxed);
        }
        self.publish(segment);
        granted
    }

    /// Of these clusters, the bytes that are memory.
    pub(crate) fn bytes_in_memory(&self, clusters: &[u32]) -> u64 {
        let areas = || self.areas.iter().filter(|area| area.description.kind == DeviceKind::Ram);
        let in_memory = clusters.iter().filter(|cluster| areas().any(|area| area.has(**cluster)));
        in_memory.count() as u64 * CLUSTER_BYTES
    }

    /// Takes clusters back, and gives their blocks to the system. `files` as for [`Clusters::grant`].
    pub(crate) fn give_back(&mut self, segment: &Segment, files: &impl Files, clusters: &[u32]) {
        for &cluster in clusters {
            let Some(area) = self.areas.iter_mut().find(|area| area.has(cluster)) else { continue };
            area.give_back(files.of(area.number), (cluster - area.description.first_cluster) as usize);
            segment.devices[area.number].full.store(0, Relaxed);
            segment.cluster_owners[cluster as usize].store(0, Relaxed);
        }
        self.publish(segment);
    }

    fn publish(&self, segment: &Segment) {
        let mut in_memory = 0;
        for area in &self.areas {
            segment.devices[area.number].clusters_used.store(area.used_count, Relaxed);
            if area.description.kind == DeviceKind::Ram {
                in_memory += u64::from(area.used_count) * CLUSTER_BYTES;
            }
        }
        segment.header.device_bytes.store(in_memory, Relaxed);
    }
}

impl Area {
    fn has(&self, cluster: u32) -> bool {
        let device = self.description;
        (device.first_cluster..device.first_cluster + device.clusters).contains(&cluster)
    }

    /// The group's number of the lowest free cluster, taken.
    fn take(&mut self, file: BorrowedFd<'_>) -> Result<u32, Errno> {
        let free = self.used[self.lowest_free..].iter().position(|used| !used);
        let cluster = self.lowest_free + free.ok_or(Errno::NOSPC)?;
        self.reserve(file, cluster)?;
        self.used[cluster] = true;
        self.used_count += 1;
        self.lowest_free = cluster + 1;
        Ok(self.description.first_cluster + cluster as u32)
    }

    /// Makes sure that the disk has the blocks, so that a full disk shows here and not in the middle of an eviction.
    fn reserve(&mut self, file: BorrowedFd<'_>, cluster: usize) -> Result<(), Errno> {
        let how = match self.description.kind {
            DeviceKind::Ram => Reserve::WhenWritten,
            _ => Reserve::Now,
        };
        let start = cluster as u64 * CLUSTER_BYTES;
        reserve(file, how, start..start + CLUSTER_BYTES, self.length as u64 * CLUSTER_BYTES)?;
        self.length = self.length.max(cluster + 1);
        Ok(())
    }

    fn give_back(&mut self, file: BorrowedFd<'_>, cluster: usize) {
        if std::mem::replace(&mut self.used[cluster], false) {
            self.used_count -= 1;
            self.lowest_free = self.lowest_free.min(cluster);
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // A file system that cannot punch keeps the blocks until the end: only space is lost.
            let _ = fallocate(file, flags, cluster as u64 * CLUSTER_BYTES, CLUSTER_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Device, prepare};
    use crate::mapping::SegmentMapping;
    use rustix::fd::AsFd;

    struct Opened<'d>(&'d [Prepared]);

    impl Files for Opened<'_> {
        fn of(&self, number: usize) -> BorrowedFd<'_> {
            self.0[number].file.as_ref().expect("it has clusters").as_fd()
        }
    }

    #[test]
    fn lowest_first_by_priority_until_full_and_again_after_it_came_back() {
        let mapping = SegmentMapping::new().expect("memory");
        let segment = mapping.segment();
        let devices = vec![Device::ram("4M").priority(1), Device::ram("6M").priority(1), Device::ram("2M")];
        let devices = prepare(devices).expect("devices");
        let (mut clusters, files) = (Clusters::new(&devices), Opened(&devices));
        assert_eq!(clusters.grant(segment, &files, 0b111, 3), [0, 3, 1], "equals take turns");
        assert_eq!(segment.header.device_bytes.load(Relaxed), 6 << 20);
        assert_eq!(clusters.grant(segment, &files, 0b001, 1), [0_u32; 0]);
        assert!(segment.devices[0].is_full() && !segment.devices[1].is_full());
        assert_eq!(clusters.grant(segment, &files, 0b111, 9), [4, 5, 7], "the lower one when both are full");
        assert_eq!(clusters.bytes_in_memory(&[0, 3, 1000]), 4 << 20);
        clusters.give_back(segment, &files, &[1, 4, 4, 1000]);
        assert!(!segment.devices[0].is_full());
        assert_eq!(segment.devices[1].clusters_used.load(Relaxed), 2);
        assert_eq!(clusters.grant(segment, &files, 0b111, 9), [1, 4]);
    }
}
