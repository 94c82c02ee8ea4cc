//! Allocation on one device: the scan order of spec §1's table.

use crate::device::{Device, DeviceFlags};
use crate::entry::{DeviceId, SwapEntry};
use crate::hooks::Hooks;
use crate::list_order::{DeviceView, ListOrder, Search};
use crate::lists::ListId;
use crate::order::Order;
use crate::policy::{ClusterPreference, DiscardPlace, FragmentScan, FullReclaim, Policy, Rotation};
use crate::reclaim::FullClusters;
use crate::scan::Request;
use crate::slots::Slots;
use crate::sync::Ordering;

/// Number of clusters of a list that are tried.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    One,
    /// As many as the list had at the start: each that failed goes to a tail.
    Whole,
}

/// While free clusters are taken first: at most one cluster in this many may be NONFULL, of those
/// that are free and of those in use.
const PER_NONFULL: u32 = 16;
/// Of the clusters in use, this many may always be NONFULL for each logical CPU that could meet
/// another one in a cluster.
const NONFULL_PER_CPU: u32 = 32;

/// How often an allocation with discards inside the allocator starts again.
const INSIDE_DISCARD_ROUNDS_MAX: u32 = 8;

impl<const PAYLOAD: usize, P: Policy> Slots<PAYLOAD, P> {
    /// Steps 0 (rotating disks only) to 6 of the table. Context: local lock held.
    pub(crate) fn alloc_on_device<H: Hooks>(
        &self,
        id: DeviceId,
        request: &mut Request<'_, H>,
    ) -> Option<SwapEntry> {
        let device = self.device(id);
        let order = request.order;
        let _global =
            device.has(DeviceFlags::ROTATIONAL).then(|| device.global_cluster.lock.hold::<P::Relax>());
        if device.has(DeviceFlags::ROTATIONAL) {
            let next = device.global_cluster.next[order.index()].load(Ordering::Relaxed);
            let found = SwapEntry::from_raw(next).and_then(|next| self.alloc_at_hint(next, request));
            if found.is_some() {
                return found;
            }
        } else if P::ROTATION == Rotation::PerAllocation {
            let hint = self.device_hint(request.logical, id, order);
            if let Some(found) = hint.and_then(|hint| self.alloc_at_hint(hint, request)) {
                request.cpu.count_hint_hit();
                return Some(found);
            }
        }
        for _ in 0..INSIDE_DISCARD_ROUNDS_MAX {
            let found = self.alloc_from_lists(id, request);
            if found.is_some() {
                return found;
            }
            let again = P::DISCARD_PLACE == DiscardPlace::Inside && self.run_discards(id, request.hooks) > 0;
            if !again {
                break;
            }
        }
        if order != Order::ZERO {
            return None;
        }
        self.steal_order_zero(id, request)
    }

    /// Steps 1 to 4.
    fn alloc_from_lists<H: Hooks>(&self, id: DeviceId, request: &mut Request<'_, H>) -> Option<SwapEntry> {
        let order = request.order;
        let discards = self.device(id).has(DeviceFlags::DISCARD);
        if P::LIST_ORDER == ListOrder::Own {
            return self.alloc_in_own_order(id, request);
        }
        let free_first = match P::CLUSTER_PREFERENCE {
            ClusterPreference::FreeWhilePlentiful => {
                discards || order == Order::ZERO && self.free_is_plentiful(self.device(id))
            }
            ClusterPreference::ByDiscard => discards,
            ClusterPreference::FreeFirst => true,
            ClusterPreference::NonfullFirst => false,
        };
        let nonfull = (order < Order::MAX).then(|| ListId::nonfull(order));
        let lists = if free_first { [Some(ListId::FREE), nonfull] } else { [nonfull, Some(ListId::FREE)] };
        for list in lists.into_iter().flatten() {
            let extent = if list == ListId::FREE { Extent::One } else { Extent::Whole };
            let found = self.alloc_from_list(id, list, extent, request);
            if found.is_some() {
                return found;
            }
            if P::FULL_RECLAIM == FullReclaim::AfterFree && list == ListId::FREE {
                self.reclaim_one_full(id, request);
            }
        }
        if P::FULL_RECLAIM == FullReclaim::AfterFreeAndNonfull {
            self.reclaim_one_full(id, request);
        }
        if order < Order::MAX {
            let extent = match P::FRAGMENT_SCAN {
                FragmentScan::One => Extent::One,
                FragmentScan::All => Extent::Whole,
            };
            return self.alloc_from_list(id, ListId::frag(order), extent, request);
        }
        None
    }

    /// Steps 1 to 4 in the policy's own order.
    fn alloc_in_own_order<H: Hooks>(&self, id: DeviceId, request: &mut Request<'_, H>) -> Option<SwapEntry> {
        let (device, order) = (self.device(id), request.order);
        let clusters = device.whole_clusters.load(Ordering::Relaxed);
        let never_used = clusters.saturating_sub(device.high_water.load(Ordering::Relaxed));
        let view = DeviceView {
            order,
            discards: device.has(DeviceFlags::DISCARD),
            clusters,
            free: device.lists.length(ListId::FREE) + never_used,
            nonfull: device.lists.length(ListId::nonfull(order)),
            fragments: device.lists.length(ListId::frag(order)),
            cpus: self.config().cpus,
        };
        // Clusters of order 9 are free or full.
        let partly_used = order < Order::MAX;
        P::list_order(&view).into_iter().flatten().find_map(|search| match search {
            Search::Free => self.alloc_from_list(id, ListId::FREE, Extent::One, request),
            Search::ReclaimFull => {
                self.reclaim_one_full(id, request);
                None
            }
            _ if !partly_used => None,
            Search::Nonfull => self.alloc_from_list(id, ListId::nonfull(order), Extent::Whole, request),
            Search::OneFragment => self.alloc_from_list(id, ListId::frag(order), Extent::One, request),
            Search::AllFragments => self.alloc_from_list(id, ListId::frag(order), Extent::Whole, request),
        })
    }

    /// Whether so few clusters of order 0 are NONFULL, beside those that are free and those in use,
    /// that none need be taken from the CPU that is just freeing into it. Read without the list
    /// lock, because it is only a preference.
    fn free_is_plentiful(&self, device: &Device) -> bool {
        let whole = device.whole_clusters.load(Ordering::Relaxed);
        let never_used = whole.saturating_sub(device.high_water.load(Ordering::Relaxed));
        let free = device.lists.length(ListId::FREE) + never_used;
        let in_use = whole.saturating_sub(free);
        let spared = (in_use / PER_NONFULL).max(NONFULL_PER_CPU * (self.config().cpus - 1));
        device.lists.length(ListId::nonfull(Order::ZERO)) <= spared.min(free / PER_NONFULL)
    }

    /// Step 6, order 0 only: takes a slot from any cluster of a larger order. Otherwise the free
    /// count would promise slots that no allocation gets.
    fn steal_order_zero<H: Hooks>(&self, id: DeviceId, request: &mut Request<'_, H>) -> Option<SwapEntry> {
        Order::all().skip(1).find_map(|order| {
            self.alloc_from_list(id, ListId::frag(order), Extent::Whole, request)
                .or_else(|| self.alloc_from_list(id, ListId::nonfull(order), Extent::Whole, request))
        })
    }

    /// Step 3: only once more than half of all slots is used.
    fn reclaim_one_full<H: Hooks>(&self, id: DeviceId, request: &mut Request<'_, H>) {
        if self.device(id).lists.length(ListId::FULL) > 0 && self.vm_swap_full() {
            let freed = self.reclaim_full(id, FullClusters::One, request.hooks);
            request.reclaimed |= freed > 0;
        }
    }

    /// Isolates, scans and relocates; once, or for the whole list.
    fn alloc_from_list<H: Hooks>(
        &self,
        id: DeviceId,
        list: ListId,
        extent: Extent,
        request: &mut Request<'_, H>,
    ) -> Option<SwapEntry> {
        let tries = match extent {
            Extent::One => 1,
            Extent::Whole => self.device(id).lists.length(list),
        };
        for _ in 0..tries {
            let cluster = self.isolate(id, list)?;
            if list == ListId::FREE && cluster.attach_frame().is_err() {
                request.no_frame = true;
                cluster.put_back_free();
                return None;
            }
            request.cpu.count_scan(request.order);
            let found = self.scan_cluster(cluster, 0, request);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Step 0: tries the cluster that a hint leads to, if it is usable for the order. Context:
    /// local lock held.
    #[inline]
    pub(crate) fn alloc_at_hint<H: Hooks>(
        &self,
        hint: SwapEntry,
        request: &Request<'_, H>,
    ) -> Option<SwapEntry> {
        let (device, _) = self.locate(hint, 1).ok()?;
        if !device.orders().contains(request.order) {
            return None;
        }
        let cluster = self.lock_cluster(hint.device(), hint.cluster() as u32);
        if !cluster.is_usable(request.order) {
            return None;
        }
        self.scan_cluster(crate::guard::Isolated::new(cluster), hint.slot_in_cluster(), request)
    }
}
