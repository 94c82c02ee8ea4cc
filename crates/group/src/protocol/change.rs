//! Changes of a running group that a command asks for, and how they ended. Each packs into the
//! words of a message.

use crate::seat::WEIGHT_MAX;

/// A change of a running group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Another limit, in bytes.
    Limit(u64),
    /// Other tiers and another limit; neither, if the limit is refused.
    LimitInTiers {
        /// The limit, in bytes.
        bytes: u64,
        /// As [`Change::Tiers`].
        devices: u32,
    },
    /// All processes of the group stop until they are thawed.
    Freeze,
    /// They go on.
    Thaw,
    /// Another weight of one process and of those that it starts from now on.
    Weight {
        /// The process.
        process: u32,
        /// Its weight, 1 to [`WEIGHT_MAX`](crate::seat::WEIGHT_MAX).
        weight: u32,
    },
    /// Another weight of the group among groups, 1 to [`WEIGHT_MAX`](crate::seat::WEIGHT_MAX).
    GroupWeight(u32),
    /// Other tiers: the new pages of the group go to these devices alone, a bit each, and to the
    /// others of their priorities.
    Tiers(u32),
}

impl Change {
    /// Packs it into the words of a message.
    pub const fn pack(self) -> [u64; 3] {
        match self {
            Change::Limit(bytes) => [0, bytes, 0],
            Change::Freeze => [1, 0, 0],
            Change::Thaw => [2, 0, 0],
            Change::Weight { process, weight } => [3, process as u64, weight as u64],
            Change::GroupWeight(weight) => [4, weight as u64, 0],
            Change::Tiers(devices) => [5, devices as u64, 0],
            Change::LimitInTiers { bytes, devices } => [6, bytes, devices as u64],
        }
    }

    /// The inverse of [`Change::pack`]; `None` for words that this version does not know.
    pub const fn unpack(words: [u64; 3]) -> Option<Self> {
        Some(match words {
            [0, bytes, _] => Change::Limit(bytes),
            [1, ..] => Change::Freeze,
            [2, ..] => Change::Thaw,
            // A number that was cut off would be another process.
            [3, process, weight]
                if process <= u32::MAX as u64 && weight > 0 && weight <= WEIGHT_MAX as u64 =>
            {
                Change::Weight { process: process as u32, weight: weight as u32 }
            }
            [4, weight, _] if weight > 0 && weight <= WEIGHT_MAX as u64 => Change::GroupWeight(weight as u32),
            [6, bytes, devices] if devices > 0 && devices <= u32::MAX as u64 => {
                Change::LimitInTiers { bytes, devices: devices as u32 }
            }
            [5, devices, _] if devices > 0 && devices <= u32::MAX as u64 => Change::Tiers(devices as u32),
            _ => return None,
        })
    }
}

/// The end of a change. In all cases but [`ChangeEnd::Done`] the group is as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeEnd {
    /// The change holds: the group is within the new limit, or stands still, or goes on.
    Done {
        /// The charge of the group then, in bytes.
        charge: u64,
    },
    /// The sender is neither root nor the user whose group it is.
    NotPermitted,
    /// Another change of the limit is under way.
    Busy,
    /// The limit is below the least that a program can live in, in bytes.
    TooSmall {
        /// That least limit.
        least: u64,
    },
    /// The group did not come within the limit: too much of it cannot leave, or finds no room in
    /// swap.
    NoRoom {
        /// The least charge that was seen, in bytes.
        charge: u64,
    },
    /// The group is frozen, and has more than the limit: nothing leaves a frozen process.
    Frozen {
        /// Its charge, in bytes.
        charge: u64,
    },
    /// A process of the group cannot be stopped, because it belongs to another user or because the
    /// group makes processes without end.
    Unstoppable {
        /// The process.
        process: u32,
    },
    /// The group has no managed process of this number.
    NoMember {
        /// The process.
        process: u32,
    },
    /// No device in the tiers takes pages now: each has failed, or is out of use.
    NoDevice,
}

impl ChangeEnd {
    /// Packs it into the words of a message.
    pub const fn pack(self) -> [u64; 3] {
        match self {
            ChangeEnd::Done { charge } => [0, charge, 0],
            ChangeEnd::NotPermitted => [1, 0, 0],
            ChangeEnd::Busy => [2, 0, 0],
            ChangeEnd::TooSmall { least } => [3, least, 0],
            ChangeEnd::NoRoom { charge } => [4, charge, 0],
            ChangeEnd::Frozen { charge } => [5, charge, 0],
            ChangeEnd::Unstoppable { process } => [6, process as u64, 0],
            ChangeEnd::NoMember { process } => [7, process as u64, 0],
            ChangeEnd::NoDevice => [8, 0, 0],
        }
    }

    /// The inverse of [`ChangeEnd::pack`]; `None` for words that this version does not know.
    pub const fn unpack(words: [u64; 3]) -> Option<Self> {
        Some(match words {
            [0, charge, _] => ChangeEnd::Done { charge },
            [1, ..] => ChangeEnd::NotPermitted,
            [2, ..] => ChangeEnd::Busy,
            [3, least, _] => ChangeEnd::TooSmall { least },
            [4, charge, _] => ChangeEnd::NoRoom { charge },
            [5, charge, _] => ChangeEnd::Frozen { charge },
            [6, process, _] => ChangeEnd::Unstoppable { process: process as u32 },
            [7, process, _] => ChangeEnd::NoMember { process: process as u32 },
            [8, ..] => ChangeEnd::NoDevice,
            _ => return None,
        })
    }
}
