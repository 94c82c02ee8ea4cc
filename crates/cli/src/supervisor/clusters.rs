//! Who owns which cluster of the file device.
//!
//! Owners are members and forked children that have not said hello; each holds a [`Bits`] of its clusters. The counts are
//! ours alone; the segment gets a copy, which a member's wild write may spoil without any consequence here.

use super::bits::Bits;
use folioswap_group::segment::{CLUSTER_BYTES, FILE_CLUSTERS_MAX, Segment};
use rustix::{
    fd::OwnedFd,
    fs::{FallocateFlags, fallocate, ftruncate},
    io::Errno,
};
use std::sync::atomic::Ordering::Relaxed;

/// Its books do not agree with what its owners hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// A cluster's count is not the number of those that own it, or its place among the used ones contradicts it.
    #[error("cluster {cluster} of the file has {counted} owners, not {stated}")]
    Owners {
        /// Which.
        cluster: u32,
        /// What the books say.
        stated: u32,
        /// What the owners say.
        counted: u32,
    },
    /// The count of used clusters is not the number of those that have an owner.
    #[error("{counted} clusters of the file are used, not {stated}")]
    Used {
        /// What the books say.
        stated: u32,
        /// What the owners say.
        counted: u32,
    },
}

/// The file device and its owners.
pub struct Clusters {
    file: Option<OwnedFd>,
    /// Clusters that the file may have.
    maximum: u32,
    /// Owners of each cluster; as long as the highest that was ever used.
    owners: Vec<u32>,
    used: Bits,
    used_count: u32,
    /// No free cluster is below it.
    lowest_free: u32,
    /// Free clusters whose blocks the file system still holds.
    unpunched: Bits,
    /// The file's length in clusters.
    length: u32,
}

impl Clusters {
    /// All free. Without a file there are none.
    pub fn new(file: Option<OwnedFd>, maximum: u32) -> Self {
        let maximum = if file.is_some() { maximum.min(FILE_CLUSTERS_MAX as u32) } else { 0 };
        Clusters {
            file,
            maximum,
            owners: Vec::new(),
            used: Bits::default(),
            used_count: 0,
            lowest_free: 0,
            unpunched: Bits::default(),
            length: 0,
        }
    }

    /// The file, for members.
    pub fn file(&self) -> Option<&OwnedFd> {
        self.file.as_ref()
    }

    /// Clusters that have an owner.
    pub fn used(&self) -> u32 {
        self.used_count
    }

    /// Gives up to `count` clusters, the lowest first; fewer, or none, when the device or its disk is full.
    pub fn grant(&mut self, segment: &Segment, owner: &mut Bits, count: usize) -> Vec<u32> {
        let mut granted = Vec::new();
        while granted.len() < count {
            let cluster = self.used.first_absent(self.lowest_free);
            self.lowest_free = cluster;
            if cluster >= self.maximum || self.reserve(cluster).is_err() {
                break;
            }
            self.used.insert(cluster);
            self.used_count += 1;
            self.lowest_free = cluster + 1;
            if self.owners.len() <= cluster as usize {
                self.owners.resize(cluster as usize + 1, 0);
            }
            self.set_owners(segment, cluster, 1);
            owner.insert(cluster);
            granted.push(cluster);
        }
        segment.header.file_clusters_used.store(self.used_count, Relaxed);
        granted
    }

    /// Lets an owner go of some clusters; those that it does not own are passed over.
    pub fn drop_some(&mut self, segment: &Segment, owner: &mut Bits, clusters: &[u32]) {
        for &cluster in clusters {
            if owner.remove(cluster) {
                self.release(segment, cluster);
            }
        }
        segment.header.file_clusters_used.store(self.used_count, Relaxed);
    }

    /// Lets an owner go of everything.
    pub fn drop_all(&mut self, segment: &Segment, owner: &Bits) {
        for cluster in owner.iter() {
            self.release(segment, cluster);
        }
        segment.header.file_clusters_used.store(self.used_count, Relaxed);
    }

    /// Makes a second owner of everything that the first one owns.
    pub fn share(&mut self, segment: &Segment, owner: &Bits) -> Bits {
        for cluster in owner.iter() {
            let owners = self.owners[cluster as usize];
            self.set_owners(segment, cluster, owners + 1);
        }
        owner.clone()
    }

    /// Gives the blocks of free clusters back to the file system, in runs.
    pub fn punch(&mut self) {
        let Some(file) = &self.file else { return };
        for (first, count) in self.unpunched.take_runs() {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // A file system that cannot punch keeps the blocks until the end: only space is lost.
            let _ =
                fallocate(file, flags, u64::from(first) * CLUSTER_BYTES, u64::from(count) * CLUSTER_BYTES);
        }
    }

    /// True when [`Clusters::punch`] has something to do.
    pub fn wants_punch(&self) -> bool {
        !self.unpunched.is_empty()
    }

    /// Checks the books against all owners there are; cost: a look at each cluster of each.
    ///
    /// # Errors
    /// The first thing found.
    pub fn validate<'a>(&self, owners: impl Iterator<Item = &'a Bits>) -> Result<(), Invalid> {
        let mut counted = vec![0_u32; self.owners.len()];
        for cluster in owners.flat_map(Bits::iter) {
            match counted.get_mut(cluster as usize) {
                Some(count) => *count += 1,
                None => return Err(Invalid::Owners { cluster, stated: 0, counted: 1 }),
            }
        }
        for (cluster, (&stated, &counted)) in (0..).zip(self.owners.iter().zip(&counted)) {
            let listed = self.used.contains(cluster) == (stated > 0);
            if stated != counted || !listed || stated > 0 && self.unpunched.contains(cluster) {
                return Err(Invalid::Owners { cluster, stated, counted });
            }
        }
        let used = counted.iter().filter(|count| **count > 0).count() as u32;
        if used != self.used_count {
            return Err(Invalid::Used { stated: self.used_count, counted: used });
        }
        Ok(())
    }

    fn release(&mut self, segment: &Segment, cluster: u32) {
        let owners = self.owners[cluster as usize];
        assert!(owners > 0 && self.used.contains(cluster), "a cluster that somebody owns is used");
        self.set_owners(segment, cluster, owners - 1);
        if owners == 1 {
            self.used.remove(cluster);
            self.used_count -= 1;
            self.unpunched.insert(cluster);
            self.lowest_free = self.lowest_free.min(cluster);
        }
    }

    fn set_owners(&mut self, segment: &Segment, cluster: u32, owners: u32) {
        self.owners[cluster as usize] = owners;
        segment.file_cluster_owners[cluster as usize].store(owners, Relaxed);
    }

    /// Makes sure that the disk has the blocks, so that a full disk shows here and not in the middle of an eviction.
    fn reserve(&mut self, cluster: u32) -> Result<(), Errno> {
        let Some(file) = &self.file else { return Err(Errno::NOSPC) };
        if self.unpunched.remove(cluster) {
            return Ok(());
        }
        let start = u64::from(cluster) * CLUSTER_BYTES;
        match fallocate(file, FallocateFlags::empty(), start, CLUSTER_BYTES) {
            Err(Errno::OPNOTSUPP) if cluster >= self.length => ftruncate(file, start + CLUSTER_BYTES)?,
            Err(Errno::OPNOTSUPP) => {}
            other => other?,
        }
        self.length = self.length.max(cluster + 1);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::SegmentFile;
    use folioswap_devices::create::create_swap_file;
    use rustix::fs::fstat;
    use std::path::Path;

    fn device(maximum: u32) -> (SegmentFile, Clusters) {
        let file = create_swap_file(Path::new("/var/tmp")).expect("a disk");
        (SegmentFile::create().expect("memfd"), Clusters::new(Some(file), maximum))
    }

    #[test]
    fn lowest_first_until_full_and_again_after_release() {
        let (segment, mut clusters) = device(4);
        let mut owner = Bits::default();
        assert_eq!(clusters.grant(&segment.mapped, &mut owner, 3), [0, 1, 2]);
        assert_eq!(clusters.grant(&segment.mapped, &mut owner, 3), [3]);
        assert!(clusters.grant(&segment.mapped, &mut owner, 1).is_empty());
        clusters.drop_some(&segment.mapped, &mut owner, &[1, 1, 77]);
        assert_eq!(segment.mapped.header.file_clusters_used.load(Relaxed), 3);
        assert_eq!(clusters.grant(&segment.mapped, &mut owner, 2), [1]);
    }

    #[test]
    fn a_shared_cluster_is_free_when_its_last_owner_lets_go() {
        let (segment, mut clusters) = device(10);
        let mut parent = Bits::default();
        clusters.grant(&segment.mapped, &mut parent, 2);
        let child = clusters.share(&segment.mapped, &parent);
        assert_eq!(segment.mapped.file_cluster_owners[1].load(Relaxed), 2);
        clusters.drop_all(&segment.mapped, &parent);
        assert_eq!((clusters.used(), clusters.wants_punch()), (2, false));
        clusters.drop_all(&segment.mapped, &child);
        assert_eq!((clusters.used(), clusters.wants_punch()), (0, true));
    }

    #[test]
    fn free_clusters_give_their_blocks_back() {
        let (segment, mut clusters) = device(8);
        let mut owner = Bits::default();
        clusters.grant(&segment.mapped, &mut owner, 8);
        let blocks =
            |clusters: &Clusters| fstat(clusters.file().expect("a file")).expect("open").st_blocks * 512;
        assert!(blocks(&clusters) >= 16 << 20);
        clusters.drop_all(&segment.mapped, &owner);
        clusters.punch();
        assert!(!clusters.wants_punch());
        assert!(blocks(&clusters) < 1 << 20);
    }

    #[test]
    fn books_that_do_not_agree_with_the_owners_are_found() {
        let (segment, mut clusters) = device(10);
        let mut owner = Bits::default();
        clusters.grant(&segment.mapped, &mut owner, 3);
        let child = clusters.share(&segment.mapped, &owner);
        assert_eq!(clusters.validate([&owner, &child].into_iter()), Ok(()));
        let lost = Invalid::Owners { cluster: 0, stated: 2, counted: 1 };
        assert_eq!(clusters.validate([&owner].into_iter()), Err(lost));
        clusters.drop_all(&segment.mapped, &child);
        assert_eq!(clusters.validate([&owner].into_iter()), Ok(()));
        assert!(clusters.validate(std::iter::empty()).is_err());
        let mut stranger = Bits::default();
        stranger.insert(70);
        assert!(clusters.validate([&owner, &stranger].into_iter()).is_err());
        clusters.drop_all(&segment.mapped, &owner);
        assert_eq!(clusters.validate(std::iter::empty()), Ok(()));
        clusters.used_count = 1;
        assert_eq!(clusters.validate(std::iter::empty()), Err(Invalid::Used { stated: 1, counted: 0 }));
    }

    #[test]
    fn without_a_file_the_device_is_always_full() {
        let segment = SegmentFile::create().expect("memfd");
        let mut clusters = Clusters::new(None, 100);
        assert!(clusters.grant(&segment.mapped, &mut Bits::default(), 1).is_empty());
    }
}
