//! Where what leaves the program goes: the compressed store while that is within its share of the limit, else the file; and what
//! of the store goes on to the file when nothing else is left to give.

use crate::evictor::Evictor;
use crate::futex::{self, Sharing};
use crate::link;
use crate::sys;
use crate::write_back::{Stuck, Tier};
use core::sync::atomic::Ordering::Relaxed;
use folioswap_core::space::Incompressible;
use folioswap_group::protocol::{CLUSTERS_PER_MESSAGE, Kind, Message};
use folioswap_group::segment::Scope;

/// Clusters asked for at a time: 32 MiB.
const CLUSTERS_WANTED: u64 = 16;
/// Pages that a round of demotion moves.
const DEMOTED_AT_ONCE: u64 = 512;

/// Bytes of the store that are looked after at a time, and between two such times.
const COMPACTED_AT_ONCE: u64 = 1 << 20;
const COMPACT_NS: u64 = 10_000_000;
/// Free room inside the store that is not worth moving objects for: an eighth of what is stored, and this.
const LOOSE_BYTES: u64 = 1 << 20;

impl Evictor {
    /// Keeps the compressed store tight: what frees have left sparse is moved together, a little at a time, and the memory of
    /// what is emptied goes back. Under the gate.
    pub(crate) fn compact(&mut self) {
        let now = sys::now_ns();
        if now < self.compact_next_ns {
            return;
        }
        self.compact_next_ns = now + COMPACT_NS;
        let space = &self.engine.space;
        let stat = space.mm_stat();
        if stat.mem_used_total > stat.compr_data_size + stat.compr_data_size / 8 + LOOSE_BYTES {
            space.compact(COMPACTED_AT_ONCE);
        }
    }

    /// Writes the oldest folio back, to the compressed store while that is within its share of the limit, else to the
    /// file.
    pub(crate) fn write_back(&mut self) -> Result<u64, ()> {
        let engine = self.engine;
        let has_file = engine.space.has_file() && !self.clusters_full;
        let tier = if has_file && self.store_is_full() { Tier::File } else { Tier::Zram };
        let incompressible = if has_file { Incompressible::ToFile } else { Incompressible::Keep };
        match engine.write_back_oldest(&mut self.scratch, tier, incompressible) {
            Ok(pages) => Ok(pages),
            Err(Stuck::WantClusters) => {
                self.want_clusters();
                let tier = if self.clusters_full { Tier::Zram } else { tier };
                let incompressible = if self.clusters_full { Incompressible::Keep } else { incompressible };
                engine.write_back_oldest(&mut self.scratch, tier, incompressible).map_err(|_| ())
            }
            Err(Stuck::NoRoom) => {
                self.clusters_full = true;
                engine.write_back_oldest(&mut self.scratch, Tier::Zram, Incompressible::Keep).map_err(|_| ())
            }
        }
    }

    /// Nothing of the program is left to take: pages of the compressed store go on to the file. Returns how many.
    pub(crate) fn demote(&mut self) -> u64 {
        let engine = self.engine;
        if engine.segment().scope() == Scope::Resident || !engine.space.has_file() || self.clusters_full {
            return 0;
        }
        engine.fork.let_pass();
        let _gate = engine.gate.lock();
        let mut demoted = engine.demote(self.demote_hand, DEMOTED_AT_ONCE, &mut self.run);
        if demoted.wants_clusters {
            self.want_clusters();
            demoted = engine.demote(self.demote_hand, DEMOTED_AT_ONCE, &mut self.run);
        }
        self.demote_hand = demoted.hand;
        engine.space.trim();
        futex::post(&engine.segment().header.charge_sank, Sharing::Shared);
        demoted.pages
    }

    /// In scope total the store is part of the limit: beyond half of it, what is evicted goes to the file.
    fn store_is_full(&self) -> bool {
        let segment = self.engine.segment();
        if segment.scope() == Scope::Resident {
            return false;
        }
        self.engine.stored_by_group() > segment.header.limit_bytes.load(Relaxed) / 2
    }

    /// Asks the supervisor for room in the file device.
    fn want_clusters(&mut self) {
        let engine = self.engine;
        let control = engine.descriptors.control.load(Relaxed);
        let request =
            Message::new(Kind::WantClusters, [CLUSTERS_WANTED.min(CLUSTERS_PER_MESSAGE as u64), 0, 0]);
        let answer = link::send(control, &request, None).and_then(|()| link::receive(control));
        match answer {
            Ok((message, _)) if message.kind() == Some(Kind::Clusters) => {
                self.clusters_full = message.clusters().is_empty();
                for &number in message.clusters() {
                    engine.space.file_space().add(number);
                }
                // The answer proves that the supervisor knows of every fork we told it: its owner counts can be trusted.
                let owners = &engine.segment().file_cluster_owners;
                engine.space.file_space().unshare(|number| {
                    owners.get(number as usize).is_some_and(|count| count.load(Relaxed) == 1)
                });
            }
            _ => sys::kill_self(),
        }
    }
}
