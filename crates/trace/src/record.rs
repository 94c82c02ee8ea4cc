//! One record: an event and its time in 16 bytes.
//!
//! ```text
//! word 0, little-endian                              word 1
//! 63        24 23    12 11        3 2     0          63   56 55                 0
//! |   tick    |  cpu   | slots - 1 | kind |          | zero |  entry or member  |
//! ```

/// Bytes of an encoded record.
pub const RECORD_BYTES: usize = 16;
/// Number of logical CPUs that a record can name.
pub const CPUS_MAX: u32 = 1 << 12;
/// Most slots of one record: a cluster. The file format fixes this number.
pub const SLOTS_MAX: u16 = 512;
/// Largest tick: 12 days with ticks of a microsecond.
pub const TICK_MAX: u64 = (1 << 40) - 1;

const ORDER_MAX: u8 = 9;
const ENTRY_BITS: u32 = 56;
const OFFSET_BITS: u32 = 51;
const OFFSET_MASK: u64 = (1 << OFFSET_BITS) - 1;

/// An event. An `entry` is the swap entry of the first slot as a number: device << 51 | offset,
/// never offset 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// 2^`order` aligned slots were allocated for a folio that leaves memory.
    Alloc {
        /// Logical CPU.
        cpu: u16,
        /// 0 to 9.
        order: u8,
        /// First slot.
        entry: u64,
    },
    /// No slots were found for this order: the folio was split, and its pages follow as allocations
    /// of order 0 on the same CPU.
    Fallback {
        /// Logical CPU.
        cpu: u16,
        /// 1 to 9.
        order: u8,
    },
    /// Slots became free.
    Free {
        /// Logical CPU.
        cpu: u16,
        /// 1 to 512, inside one cluster.
        slots: u16,
        /// First slot.
        entry: u64,
    },
    /// The last count of these slots went while their pages stay in the swap cache. The slots are
    /// *only cached*, and free when the pages leave the cache.
    Retain {
        /// Logical CPU.
        cpu: u16,
        /// 1 to 512, inside one cluster.
        slots: u16,
        /// First slot.
        entry: u64,
    },
    /// Slots that were only cached are swapped out again: their unchanged pages leave memory, and
    /// nothing is written or allocated.
    Reuse {
        /// Logical CPU.
        cpu: u16,
        /// 1 to 512, inside one cluster.
        slots: u16,
        /// First slot.
        entry: u64,
    },
    /// The records from here on come from this member: a process with an allocator of its own, so
    /// that equal entries of different members are different slots. Records before the first
    /// `Member` come from member 0.
    Member {
        /// The member's number.
        member: u32,
    },
    /// A member ended: all slots that it still held are free.
    End {
        /// The member's number.
        member: u32,
    },
    /// The member of the current records forked: `member`, a new one, holds the same slots under
    /// the same entries. Such a slot is free when both have freed it; later allocations of either
    /// are its own.
    Fork {
        /// The new member's number.
        member: u32,
    },
}

/// An event and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Time since the start of the trace, in ticks of the [`Header`](crate::Header); at most
    /// [`TICK_MAX`]. Ascending within a member.
    pub tick: u64,
    /// The event.
    pub event: Event,
}

/// Why a record has no encoding, or why bytes are no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordError {
    /// An order above 9, a fallback of order 0, or a number of slots that is no power of two where
    /// an order is meant.
    Order,
    /// No slots, more than 512, or a range that crosses a cluster's border.
    Slots,
    /// A CPU from [`CPUS_MAX`] on.
    Cpu,
    /// A tick above [`TICK_MAX`].
    Tick,
    /// An entry that no slot has, or one that is not aligned to its order.
    Entry,
    /// A field that this kind of event does not use is not zero.
    Reserved,
}

impl core::fmt::Display for RecordError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str(match self {
            RecordError::Order => "invalid order",
            RecordError::Slots => "invalid range of slots",
            RecordError::Cpu => "logical CPU out of range",
            RecordError::Tick => "time out of range",
            RecordError::Entry => "invalid or misaligned swap entry",
            RecordError::Reserved => "reserved bits are set",
        })
    }
}

impl core::error::Error for RecordError {}

const ALLOC: u64 = 0;
const FALLBACK: u64 = 1;
const FREE: u64 = 2;
const RETAIN: u64 = 3;
const REUSE: u64 = 4;
const MEMBER: u64 = 5;
const END: u64 = 6;
const FORK: u64 = 7;

/// The fields of a record before they are packed.
struct Fields {
    kind: u64,
    cpu: u16,
    slots: u16,
    last: u64,
}

impl Event {
    fn fields(&self) -> Fields {
        let fields = |kind, cpu, slots, last| Fields { kind, cpu, slots, last };
        // An order that does not fit gives a number of slots that `check` refuses.
        let slots_of = |order: u8| 1u16.checked_shl(u32::from(order)).unwrap_or(0);
        match *self {
            Event::Alloc { cpu, order, entry } => fields(ALLOC, cpu, slots_of(order), entry),
            Event::Fallback { cpu, order } => fields(FALLBACK, cpu, slots_of(order), 0),
            Event::Free { cpu, slots, entry } => fields(FREE, cpu, slots, entry),
            Event::Retain { cpu, slots, entry } => fields(RETAIN, cpu, slots, entry),
            Event::Reuse { cpu, slots, entry } => fields(REUSE, cpu, slots, entry),
            Event::Member { member } => fields(MEMBER, 0, 1, u64::from(member)),
            Event::End { member } => fields(END, 0, 1, u64::from(member)),
            Event::Fork { member } => fields(FORK, 0, 1, u64::from(member)),
        }
    }

    fn from_fields(fields: &Fields) -> Event {
        let Fields { kind, cpu, slots, last: entry } = *fields;
        let order = slots.trailing_zeros() as u8;
        match kind {
            ALLOC => Event::Alloc { cpu, order, entry },
            FALLBACK => Event::Fallback { cpu, order },
            FREE => Event::Free { cpu, slots, entry },
            RETAIN => Event::Retain { cpu, slots, entry },
            REUSE => Event::Reuse { cpu, slots, entry },
            MEMBER => Event::Member { member: entry as u32 },
            END => Event::End { member: entry as u32 },
            _ => Event::Fork { member: entry as u32 },
        }
    }
}

impl Fields {
    fn check(&self) -> Result<(), RecordError> {
        let Fields { kind, cpu, slots, last } = *self;
        if u32::from(cpu) >= CPUS_MAX {
            return Err(RecordError::Cpu);
        }
        match kind {
            ALLOC | FALLBACK => {
                if !slots.is_power_of_two() || slots.trailing_zeros() > u32::from(ORDER_MAX) {
                    return Err(RecordError::Order);
                }
                if kind == FALLBACK {
                    return match (slots, last) {
                        (1, _) => Err(RecordError::Order),
                        (_, 0) => Ok(()),
                        _ => Err(RecordError::Reserved),
                    };
                }
                check_entry(last)?;
                if last & OFFSET_MASK & (u64::from(slots) - 1) != 0 {
                    return Err(RecordError::Entry);
                }
                Ok(())
            }
            FREE | RETAIN | REUSE => {
                check_entry(last)?;
                let first = last % u64::from(SLOTS_MAX);
                if slots == 0 || first + u64::from(slots) > u64::from(SLOTS_MAX) {
                    return Err(RecordError::Slots);
                }
                Ok(())
            }
            _ => {
                if cpu == 0 && slots == 1 && last <= u64::from(u32::MAX) {
                    Ok(())
                } else {
                    Err(RecordError::Reserved)
                }
            }
        }
    }
}

fn check_entry(entry: u64) -> Result<(), RecordError> {
    if entry >> ENTRY_BITS != 0 || entry & OFFSET_MASK == 0 { Err(RecordError::Entry) } else { Ok(()) }
}

impl Record {
    /// Encodes the record. Cost: some nanoseconds.
    ///
    /// # Errors
    /// [`RecordError`] if a field is out of its range.
    pub fn encode(&self) -> Result<[u8; RECORD_BYTES], RecordError> {
        let fields = self.event.fields();
        fields.check()?;
        if self.tick > TICK_MAX {
            return Err(RecordError::Tick);
        }
        let first =
            self.tick << 24 | u64::from(fields.cpu) << 12 | u64::from(fields.slots - 1) << 3 | fields.kind;
        let mut bytes = [0; RECORD_BYTES];
        bytes[..8].copy_from_slice(&first.to_le_bytes());
        bytes[8..].copy_from_slice(&fields.last.to_le_bytes());
        Ok(bytes)
    }

    /// Decodes a record, the opposite of [`encode`](Self::encode).
    ///
    /// # Errors
    /// [`RecordError`] for bytes that `encode` never makes.
    pub fn decode(bytes: &[u8; RECORD_BYTES]) -> Result<Record, RecordError> {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let (first, last) = (word(0), word(8));
        let fields = Fields {
            kind: first & 7,
            slots: (first >> 3 & 0x1ff) as u16 + 1,
            cpu: (first >> 12 & 0xfff) as u16,
            last,
        };
        fields.check()?;
        Ok(Record { tick: first >> 24, event: Event::from_fields(&fields) })
    }
}
