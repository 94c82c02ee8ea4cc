//! Memory that relatives share after a fork, counted once, and never too low.
//!
//! The kernel tells a member the proportional size of its shared memory (`Pss_Anon`), but only on
//! request, for the price of a walk over its page tables, and the action of one member changes the
//! value of the others. A member therefore publishes a *discount*, the difference between its
//! resident memory and its proportional part of that. Every action that may have made a discount
//! too high since then is added to a sum at once, by the member that acts:
//!
//! * A page that n members shared and that one of them no longer shares (it was written to, or
//!   left) is no longer 1/n in each. The member that acted takes a whole page off its own discount.
//!   The other n - 1 count (n - 1)/n of a page between them where it is one now: too little by 1/n,
//!   at most half a page.
//! * A member that ends counts nothing any more. Of each page that it shared the others count too
//!   little by at most half.
//!
//! The group's charge is the sum of the members' charges, plus half of the memory that stopped
//! being shared since the oldest discount was measured. It is exact again when all have measured.

use crate::segment::{Header, Member};
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// A member's sharing with relatives. All-zero: it shares nothing. Written by its member.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Sharing {
    /// The discount as measured, plus the value of [`Sharing::ended_bytes`] just before the
    /// measurement.
    until: AtomicU64,
    /// Bytes that stopped being shared by this member's actions, since it began.
    ended_bytes: AtomicU64,
    /// The value of [`Header::unshared_bytes`] just before the discount was measured.
    seen: AtomicU64,
    /// 1: another member has, or had, memory of this one, or the reverse.
    related: AtomicU64,
}

/// The values of the counters just before a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BeforeMeasuring {
    ended: u64,
    unshared: u64,
}

impl Sharing {
    /// Resident bytes that the member does not count.
    pub fn discount(&self) -> u64 {
        self.until.load(Relaxed).saturating_sub(self.ended_bytes.load(Relaxed))
    }

    /// Bytes that stopped being shared by this member's actions, since it began.
    pub fn ended_bytes(&self) -> u64 {
        self.ended_bytes.load(Relaxed)
    }

    /// Says that another member may share memory with this one from now on. Called before that
    /// member measures.
    pub fn gain_relative(&self) {
        self.related.store(1, Release);
    }

    /// The state to pass to [`publish`](Self::publish). Called before the discount is measured.
    pub fn before_measuring(&self, header: &Header) -> BeforeMeasuring {
        BeforeMeasuring {
            ended: self.ended_bytes.load(Relaxed),
            unshared: header.unshared_bytes.load(Acquire),
        }
    }

    /// Publishes the measured discount, in bytes: resident memory minus its proportional part.
    pub fn publish(&self, before: BeforeMeasuring, discount: u64) {
        self.until.store(before.ended.saturating_add(discount), Relaxed);
        // A reader that finds the new stamp finds the new discount, so the sum is never too low in
        // between.
        self.seen.store(before.unshared, Release);
    }

    /// Bytes that stopped being shared, in the whole group, since the discount was measured.
    pub fn stale_bytes(&self, header: &Header) -> u64 {
        let seen = self.seen.load(Acquire);
        header.unshared_bytes.load(Relaxed).saturating_sub(seen)
    }

    /// Says that this member has stopped sharing this many bytes, or may have.
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
    /// Bytes that the member counts towards the limit, as measured. Too low by its part of
    /// [`uncertain_bytes`], and by its unfound bytes.
    pub fn charge(&self) -> u64 {
        // The discount is loaded first: sharing that ends meanwhile only makes it smaller.
        let discount = self.sharing.discount();
        self.charge_bytes.load(Relaxed).saturating_sub(discount)
    }

    /// Ends the member's sharing. The others count the memory that it shared as soon as they
    /// measure, and until then as uncertain.
    pub(crate) fn end_sharing(&self, header: &Header) {
        if self.sharing.related.load(Acquire) != 0 {
            header.unshared_bytes.fetch_add(self.charge_bytes.load(Relaxed), Release);
        }
    }
}

/// Most bytes that the members together may count too little.
pub fn uncertain_bytes<'a>(header: &Header, members: impl Iterator<Item = &'a Member>) -> u64 {
    let sharing = members.filter(|member| member.sharing.discount() > 0);
    sharing.map(|member| member.sharing.stale_bytes(header)).max().unwrap_or(0) / 2
}

#[cfg(test)]
mod tests;
