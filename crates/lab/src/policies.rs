//! Policies by name: a name on the command line becomes a type.

mod combined;

pub use combined::{Combination, Inherited};

use crate::events::Simulated;
use combined::ByParts;
use folioswap_slots::{
    BeforeClusterScan, BeforeRoundRobin, BeforeSlotCacheRemoval, CountLocks, Current, DescendingPriorities,
    DiscardInside, FreeFirst, FreePerSlot, NonfullUnlessDiscard, Policy, PreferOwnNode, ReclaimAfterFree,
    Relax, RelaxBy, RotatePerAllocation, SlotCachePerCpu,
};
use serde::Serialize;
use std::fmt;

/// Yields the processor while a lock stays taken, because threads may outnumber processors.
#[derive(Debug, Clone, Copy, Default)]
pub struct Yield;

impl Relax for Yield {
    fn relax(_round: u32) {
        std::thread::yield_now();
    }
}

macro_rules! policies {
    ($($(#[$doc:meta])* $name:ident, $text:literal, $policy:ty, $help:literal;)*) => {
        /// A policy that can be chosen by name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum PolicyName {
            $( #[doc = $help] $name, )*
            /// Parts of series 1, the rest as in Linux 6.19.
            Combined(Combination),
        }

        impl PolicyName {
            /// All policies with a name of their own, today's first.
            pub const ALL: &'static [PolicyName] = &[$( PolicyName::$name, )*];

            /// The name on the command line; that of a combination is in its `Display`.
            pub const fn name(self) -> &'static str {
                match self { $( PolicyName::$name => $text, )* PolicyName::Combined(_) => "combination" }
            }

            /// A line of help.
            pub const fn help(self) -> &'static str {
                match self {
                    $( PolicyName::$name => $help, )*
                    PolicyName::Combined(_) => "parts of series 1, the rest as in Linux 6.19",
                }
            }

            /// Runs `task` with the policy's type.
            pub fn apply<T: WithPolicy>(self, task: T) -> T::Output {
                match self {
                    $( PolicyName::$name => task.run::<RelaxBy<Yield, $policy>>(), )*
                    PolicyName::Combined(parts) => parts.during(|| task.run::<RelaxBy<Yield, ByParts>>()),
                }
            }

            /// Runs `task` with the policy's type, whose locks and steps a simulation hears of.
            pub fn apply_simulated<T: WithPolicy>(self, task: T) -> T::Output {
                match self {
                    $( PolicyName::$name => task.run::<RelaxBy<Simulated, $policy>>(), )*
                    PolicyName::Combined(parts) => {
                        parts.during(|| task.run::<RelaxBy<Simulated, ByParts>>())
                    }
                }
            }

            /// Runs `task` with the policy's type, which counts its lock acquisitions. That costs
            /// time, and a second copy of all that `task` calls.
            pub fn apply_counted<T: WithPolicy>(self, task: T) -> T::Output {
                match self {
                    $( PolicyName::$name => task.run::<CountLocks<RelaxBy<Yield, $policy>>>(), )*
                    PolicyName::Combined(parts) => {
                        parts.during(|| task.run::<CountLocks<RelaxBy<Yield, ByParts>>>())
                    }
                }
            }
        }
    };
}

/// Whether an allocator counts its lock acquisitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locks {
    /// They are not counted, for timing.
    Uncounted,
    /// They are counted.
    Counted,
}

/// A task for a policy that is known by name only.
pub trait WithPolicy {
    /// The task's result.
    type Output;
    /// Runs the task with the policy `P`.
    fn run<P: Policy>(self) -> Self::Output;
}

type Before<P> = FreeFirst<ReclaimAfterFree<DiscardInside<P>>>;

policies! {
    Current, "current", Current, "all five series, and free clusters first while they are plentiful: what folioswap does";
    ScanAll, "scan-all", BeforeClusterScan, "before series 1: scans all fragment clusters, takes free clusters first";
    ScanOne, "scan-one", Before<Current>, "series 1, patch 1 only: scans one fragment cluster, takes free clusters first";
    NonfullFirst, "nonfull-first", DiscardInside<NonfullUnlessDiscard>, "series 1 as it was merged: nonfull clusters first, discards inside the allocator";
    SlotCache, "slot-cache", BeforeSlotCacheRemoval, "before series 2: 64 slots cached per CPU, devices in turn every 64 slots";
    FreePerSlot, "free-per-slot", FreePerSlot<NonfullUnlessDiscard>, "before series 3: slots are freed one by one";
    Linux6_9, "6.9", SlotCachePerCpu<RotatePerAllocation<FreePerSlot<PreferOwnNode<DescendingPriorities<BeforeClusterScan>>>>>, "Linux 6.9: before all five series";
    Linux6_14, "6.14", SlotCachePerCpu<RotatePerAllocation<PreferOwnNode<DescendingPriorities<BeforeClusterScan>>>>, "Linux 6.10 to 6.14: after series 3";
    Linux6_15, "6.15", PreferOwnNode<DescendingPriorities<BeforeClusterScan>>, "Linux 6.15 to 6.17: after series 2";
    Linux6_18, "6.18", PreferOwnNode<DescendingPriorities<DiscardInside<NonfullUnlessDiscard>>>, "Linux 6.18: after series 1";
    Linux6_19, "6.19", NonfullUnlessDiscard, "Linux 6.19: after series 4, and discards outside the allocator";
    Linux7, "7.x", NonfullUnlessDiscard, "Linux 7.x, by the mm tree of 2026: allocates as 6.19";
    DrainedFirst, "drained-first", BeforeRoundRobin, "before series 4: devices by order of swapon, a node's own first";
}

impl fmt::Display for PolicyName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyName::Combined(parts) => fmt::Display::fmt(parts, formatter),
            named => formatter.pad(named.name()),
        }
    }
}

impl Serialize for PolicyName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// No policy has this name.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("no policy is called {0:?}; there are: {names}, and combinations of {parts} like scan-one+free-first", names = names(), parts = combined::parts())]
pub struct NoSuchPolicy(pub String);

fn names() -> String {
    PolicyName::ALL.iter().map(|policy| policy.name()).collect::<Vec<_>>().join(", ")
}

impl std::str::FromStr for PolicyName {
    type Err = NoSuchPolicy;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = PolicyName::ALL.iter().find(|policy| policy.name() == text);
        let combined = || Combination::parse(text).map(PolicyName::Combined);
        found.copied().or_else(combined).ok_or_else(|| NoSuchPolicy(text.to_owned()))
    }
}
