//! What relatives share after a fork, counted once, and never too low.
//!
//! The kernel tells a member how much of its memory is shared, in proportion (`Pss_Anon`), but only when it is asked, at the
//! price of a walk over its page tables; and what one member does changes what is true of the others. So a member
//! publishes a *discount*, the difference between what is resident in it and its part of that, and everything that may
//! have made a discount too high since is added to a sum, at once, by whoever does it:
//!
//! * A page that was shared by n and is not shared by one of them any more (it was written to, or left) is no longer 1/n
//!   in each. Who did it takes a whole page off its own discount. The other n - 1 count (n - 1)/n of a page between
//!   them where it is one now: too little by 1/n, at most half a page.
//! * A member that ends counts nothing any more. Of each page that it shared the others count too little by at most half.
//!
//! So the group's charge is the sum of what its members count, plus half of what stopped being shared since the
//! oldest discount was measured. It is exact again when all have measured.

use crate::segment::{Header, Member};
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// A member's part. All-zero: it shares nothing. Written by its member.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Sharing {
    /// The discount as it was measured, plus what [`Sharing::ended_bytes`] was just before.
    until: AtomicU64,
    /// Bytes that stopped being shared by this member's doing, since it began.
    ended_bytes: AtomicU64,
    /// What [`Header::unshared_bytes`] was just before the discount was measured.
    seen: AtomicU64,
    /// 1: another member has, or had, memory of this one, or the other way round.
    related: AtomicU64,
}

/// Where the counters stood just before a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before {
    ended: u64,
    unshared: u64,
}

impl Sharing {
    /// What the member does not count of what is resident in it, in bytes.
    pub fn discount(&self) -> u64 {
        self.until.load(Relaxed).saturating_sub(self.ended_bytes.load(Relaxed))
    }

    /// Bytes that stopped being shared by this member's doing, since it began.
    pub fn ended_bytes(&self) -> u64 {
        self.ended_bytes.load(Relaxed)
    }

    /// Another member may share memory with this one from now on. To be called before that member measures.
    pub fn gain_relative(&self) {
        self.related.store(1, Release);
    }

    /// To be called before the discount is measured.
    pub fn before_measuring(&self, header: &Header) -> Before {
        Before { ended: self.ended_bytes.load(Relaxed), unshared: header.unshared_bytes.load(Acquire) }
    }

    /// The measured discount, in bytes: resident memory minus the proportional part of it.
    pub fn publish(&self, before: Before, discount: u64) {
        self.until.store(before.ended + discount, Relaxed);
        // Who finds the new stamp finds the new discount: the sum is never too low in between.
        self.seen.store(before.unshared, Release);
    }

    /// Bytes that stopped being shared, in the whole group, since the discount was measured.
    pub fn stale_bytes(&self, header: &Header) -> u64 {
        let seen = self.seen.load(Acquire);
        header.unshared_bytes.load(Relaxed).saturating_sub(seen)
    }

    /// This member has stopped sharing so many bytes, or may have.
    pub fn end(&self, header: &Header, bytes: u64) {
        header.unshared_bytes.fetch_add(bytes, Relaxed);
        self.ended_bytes.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn clear(&self) {
        let Sharing { until, ended_bytes, seen, related } = self;
        for field in [until, ended_bytes, seen, related] {
            field.store(0, Relaxed);
        }
    }
}

impl Member {
    /// What it counts towards the limit, in bytes, as measured. Too low by its part of [`uncertain_bytes`], and by its unfound bytes.
    pub fn charge(&self) -> u64 {
        // The discount first: what ends meanwhile makes it only smaller.
        let discount = self.sharing.discount();
        self.charge_bytes.load(Relaxed).saturating_sub(discount)
    }

    /// It ends: what it shared is counted by the others as soon as they measure, and until then as uncertain.
    pub(crate) fn end_sharing(&self, header: &Header) {
        if self.sharing.related.load(Acquire) != 0 {
            header.unshared_bytes.fetch_add(self.charge_bytes.load(Relaxed), Release);
        }
    }
}

/// By how much the members together may count too little, in bytes, at most.
pub fn uncertain_bytes<'a>(header: &Header, members: impl Iterator<Item = &'a Member>) -> u64 {
    let sharing = members.filter(|member| member.sharing.discount() > 0);
    sharing.map(|member| member.sharing.stale_bytes(header)).max().unwrap_or(0) / 2
}

#[cfg(test)]
mod tests;
