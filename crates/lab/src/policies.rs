//! Policies by name: a name on the command line becomes a type.

use folioswap_slots::{
    BeforeClusterScan, BeforeRoundRobin, BeforeSlotCacheRemoval, CountLocks, Current, DiscardInside,
    FreeFirst, FreePerSlot, NonfullUnlessDiscard, Policy, ReclaimAfterFree, Relax, RelaxBy,
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
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum PolicyName { $( #[doc = $help] $name, )* }

        impl PolicyName {
            /// All policies, today's first.
            pub const ALL: &'static [PolicyName] = &[$( PolicyName::$name, )*];

            /// The name on the command line.
            pub const fn name(self) -> &'static str {
                match self { $( PolicyName::$name => $text, )* }
            }

            /// A line of help.
            pub const fn help(self) -> &'static str {
                match self { $( PolicyName::$name => $help, )* }
            }

            /// Runs `task` with the policy's type.
            pub fn apply<T: WithPolicy>(self, task: T) -> T::Output {
                match self { $( PolicyName::$name => task.run::<RelaxBy<Yield, $policy>>(), )* }
            }

            /// Runs `task` with the policy's type, which counts its lock acquisitions. That costs
            /// time, and a second copy of all that `task` calls.
            pub fn apply_counted<T: WithPolicy>(self, task: T) -> T::Output {
                match self { $( PolicyName::$name => task.run::<CountLocks<RelaxBy<Yield, $policy>>>(), )* }
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
    DrainedFirst, "drained-first", BeforeRoundRobin, "before series 4: devices by order of swapon, a node's own first";
}

impl fmt::Display for PolicyName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// No policy has this name.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("no policy is called {0:?}; there are: {names}", names = names())]
pub struct NoSuchPolicy(pub String);

fn names() -> String {
    PolicyName::ALL.iter().map(|policy| policy.name()).collect::<Vec<_>>().join(", ")
}

impl std::str::FromStr for PolicyName {
    type Err = NoSuchPolicy;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = PolicyName::ALL.iter().find(|policy| policy.name() == text);
        found.copied().ok_or_else(|| NoSuchPolicy(text.to_owned()))
    }
}
