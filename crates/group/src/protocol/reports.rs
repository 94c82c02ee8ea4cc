//! Reports of members about themselves: notes, lost pages, broken invariants, and the reasons for
//! the end of a process or of the group. Each is one number, or packs into one word, of a message.

/// The reason why a member cannot keep the limit, or cannot go on. The supervisor ends the group,
/// with one message and status 137, when it sees too that the memory is used up; a failed pager
/// costs its process, and the group where that process is CMD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum OutOfMemory {
    /// Every device is full.
    SwapFull = 1,
    /// Memory that cannot be managed is alone above the limit.
    Unmanaged = 2,
    /// The pager cannot go on, because a system call that must not fail has failed (the value is
    /// the errno).
    PagerFailed = 3,
}

impl OutOfMemory {
    pub(super) const ALL: [OutOfMemory; 3] =
        [OutOfMemory::SwapFull, OutOfMemory::Unmanaged, OutOfMemory::PagerFailed];

    /// The reason with this number.
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| *reason as u64 == number)
    }
}

/// An observation that is counted and reported at the end; not an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Note {
    /// This process could not have a userfaultfd (value: errno) and runs unmanaged.
    NoUserfault = 1,
    /// A page was poisoned (values: its address; [`Lost`] packed).
    Poisoned = 2,
    /// An invariant does not hold (value: [`Invariant`], and a figure or an address that belongs to
    /// it).
    Violation = 3,
    /// A device refused a write; nothing is lost (values: the first bad slot, by the group's
    /// numbers; the errno).
    WriteFailed = 4,
    /// The process ends itself (values: [`Ending`]; the system's error, 0: none).
    Ends = 5,
    /// The program has put a filter before its own calls, which the gate must see: the process has
    /// given up all that was managed, and its memory stays.
    Confined = 6,
}

impl Note {
    pub(super) const ALL: [Note; 6] =
        [Note::NoUserfault, Note::Poisoned, Note::Violation, Note::WriteFailed, Note::Ends, Note::Confined];

    /// The note with this number.
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|note| *note as u64 == number)
    }
}

/// The reason why a process ends itself: it could go on only with other bytes than it wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Ending {
    /// A forked child is no member, so it cannot reach the memory that it inherited.
    NotJoined = 1,
    /// There is no memory for the page table of this process, or of a child.
    NoTable = 2,
    /// A page that was on its way out cannot be stored, and has to be now.
    NotStored = 3,
    /// The kernel does not say which pages are present.
    NoAnswer = 4,
    /// More of its mappings changed during a fork, or it made more children by bare system calls,
    /// than can be recorded.
    TooMany = 5,
    /// The supervisor does not say where the process may write.
    NoClusters = 6,
    /// The system gives no random bits, without which another process could take the memory of the
    /// next forked child.
    NoToken = 7,
}

impl Ending {
    /// All endings.
    pub const ALL: [Ending; 7] = [
        Ending::NotJoined,
        Ending::NoTable,
        Ending::NotStored,
        Ending::NoAnswer,
        Ending::TooMany,
        Ending::NoClusters,
        Ending::NoToken,
    ];

    /// The ending with this number.
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|ending| *ending as u64 == number)
    }
}

impl core::fmt::Display for Ending {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str(match self {
            Ending::NotJoined => "it cannot join the group, and so cannot have what it inherited",
            Ending::NoTable => "there is no memory for the table of its pages",
            Ending::NotStored => "a page that was on its way out cannot be stored",
            Ending::NoAnswer => "the kernel does not say which of its pages are present",
            Ending::TooMany => {
                "it changed more mappings during a fork, or made more children, than can be kept account of"
            }
            Ending::NoClusters => "it is not told where it may write",
            Ending::NoToken => "the system gives it no random bits for its next fork",
        })
    }
}

/// The reason why the bytes of a page are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The bytes fail their checksum, in the process's own store.
    Corrupt,
    /// The bytes fail their checksum, in this slot of a shared device.
    CorruptOnDevice {
        /// The slot, by the group's numbers.
        slot: u64,
    },
    /// The shared device does not return the bytes.
    Unreadable {
        /// The slot, by the group's numbers.
        slot: u64,
        /// The system's error; 0: the device ends before the slot.
        errno: u16,
    },
    /// No record says where the bytes are.
    Missing,
}

impl Lost {
    const SLOT_BITS: u32 = 44;
    const KIND_SHIFT: u32 = 60;

    /// The slot of a shared device, if the page was on one.
    pub const fn slot(self) -> Option<u64> {
        match self {
            Lost::CorruptOnDevice { slot } | Lost::Unreadable { slot, .. } => Some(slot),
            Lost::Corrupt | Lost::Missing => None,
        }
    }

    /// Packs it into one word. Slots have up to 44 bits (2^32 clusters), error numbers 12.
    pub const fn pack(self) -> u64 {
        let (kind, errno, slot) = match self {
            Lost::Corrupt => (0, 0, 0),
            Lost::CorruptOnDevice { slot } => (1, 0, slot),
            Lost::Unreadable { slot, errno } => (2, errno as u64 & 0xfff, slot),
            Lost::Missing => (3, 0, 0),
        };
        kind << Self::KIND_SHIFT | errno << Self::SLOT_BITS | slot & ((1 << Self::SLOT_BITS) - 1)
    }

    /// The inverse of [`Lost::pack`]; every word is valid.
    pub const fn unpack(word: u64) -> Self {
        let slot = word & ((1 << Self::SLOT_BITS) - 1);
        match word >> Self::KIND_SHIFT {
            0 => Lost::Corrupt,
            1 => Lost::CorruptOnDevice { slot },
            2 => Lost::Unreadable { slot, errno: (word >> Self::SLOT_BITS & 0xfff) as u16 },
            _ => Lost::Missing,
        }
    }
}

/// An invariant that a member found broken when it validated itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Invariant {
    /// The slot allocator contradicts itself.
    Slots = 1,
    /// The compressed RAM device contradicts itself (`Invalid::number` of the devices crate).
    Store = 2,
    /// A page is in a transient state while no thread works on it (its address).
    HalfWay = 3,
    /// A page word names a slot that is not used, or not in the way that its state says (its
    /// address).
    WordWithoutSlot = 4,
    /// A page is stored nowhere (its address).
    Nowhere = 5,
    /// Slots are used that no page word names (how many more, or fewer).
    Unreachable = 6,
    /// The number of pages out does not fit their words (the counted number).
    PagesOut = 7,
    /// The compressed RAM device holds more or fewer objects than the slots name (the number it
    /// holds).
    StoreContents = 8,
    /// The file device's used slots are not those that the slots name (the number used).
    FileContents = 9,
    /// The number of pages that keep their stored copy does not fit their words (the counted
    /// number).
    CleanPages = 10,
    /// The counts of generations do not fit the objects of the compressed RAM device (their sum).
    Ages = 11,
    /// A slot word's shadow cannot have been written, because its age is in the future (the page's
    /// address).
    Shadow = 12,
}

impl Invariant {
    /// All invariants.
    pub const ALL: [Invariant; 12] = [
        Invariant::Slots,
        Invariant::Store,
        Invariant::HalfWay,
        Invariant::WordWithoutSlot,
        Invariant::Nowhere,
        Invariant::Unreachable,
        Invariant::PagesOut,
        Invariant::StoreContents,
        Invariant::FileContents,
        Invariant::CleanPages,
        Invariant::Ages,
        Invariant::Shadow,
    ];

    /// The invariant with this number.
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|invariant| *invariant as u64 == number)
    }
}
