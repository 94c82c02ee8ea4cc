//! What a system call reads and writes of the caller's memory: `syscalls.txt`, and the sizes that
//! depend on arguments.

use linux_raw_sys::{general as raw, prctl};

/// Direction of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The kernel reads.
    Read,
    /// The kernel writes.
    Write,
    /// The kernel does both.
    Both,
}

/// Size of what an argument points to. Numbers of arguments are 0 to 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// So many bytes.
    Bytes(u16),
    /// Another argument, and some bytes more.
    Length {
        /// The other argument.
        of: u8,
        /// Bytes more.
        more: u16,
    },
    /// Another argument, an `int`, times an element.
    Times {
        /// The other argument.
        count: u8,
        /// Bytes of an element.
        bytes: u16,
    },
    /// A terminated string.
    Text,
    /// A terminated string, or a page.
    TextOrPage,
    /// An array of strings that a null pointer ends.
    Texts,
    /// An iovec of as many entries as another argument says.
    Vectors(u8),
    /// A msghdr.
    Message,
    /// An array of mmsghdr.
    Messages(u8),
    /// A set of bits, in words of 8 bytes.
    Bits {
        /// The argument with the number of bits.
        of: u8,
        /// How many the kernel takes away from it.
        less: u8,
    },
    /// A byte for each page of another argument's bytes.
    Pages(u8),
    /// The word of 4 bytes to which another argument points.
    Pointed(u8),
    /// The word of 4 bytes at this offset of the structure itself.
    Inside(u8),
    /// A structure of a mask's address and size.
    Mask,
    /// A structure of clone3(2), and what its words lead to.
    Clone3,
    /// What ioctl(2)'s request says.
    Ioctl,
    /// What fcntl(2)'s command says.
    Fcntl,
    /// What prctl(2)'s operation says.
    Prctl,
    /// What futex(2)'s operation says.
    Futex,
    /// What arch_prctl(2)'s operation says.
    Arch,
    /// There are pointers that the table does not follow.
    Unknown,
}

/// One argument that points to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Its number, 0 to 5.
    pub argument: u8,
    /// What the kernel does there.
    pub access: Access,
    /// How much of it.
    pub size: Size,
}

struct Line {
    first: u16,
    count: u8,
    marks: u8,
}

const KNOWN: u8 = 1;
const REPEATABLE: u8 = 2;

include!(concat!(env!("OUT_DIR"), "/table.rs"));

/// The arguments of a call that point to memory; none where the table does not have the number.
pub fn operands(number: u32) -> Option<&'static [Operand]> {
    let line = LINES.get(number as usize)?;
    if line.marks & KNOWN == 0 {
        return None;
    }
    OPERANDS.get(line.first as usize..line.first as usize + line.count as usize)
}

/// Whether a call that has failed with EFAULT may be made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// Nothing is lost, and nothing is done twice.
    Harmless,
    /// Data may have been taken that would be lost.
    Harmful,
}

/// Whether a call may be repeated after EFAULT.
pub fn repeat(number: u64) -> Repeat {
    match LINES.get(number as usize) {
        Some(line) if line.marks & REPEATABLE != 0 => Repeat::Harmless,
        _ => Repeat::Harmful,
    }
}

/// The bytes of an operand, as far as the arguments alone tell them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// So many bytes at the argument.
    Bytes(u64),
    /// None: the argument is no pointer here.
    Nothing,
    /// The program's memory tells more: see [`Operand::size`].
    InMemory,
    /// Pointers that nobody follows, among so many bytes.
    Unknown(u16),
}

impl Operand {
    /// The extent of this operand in a call with these arguments.
    pub fn extent(&self, arguments: &[u64; 6]) -> Extent {
        let [_, second, third, ..] = *arguments;
        let other = |number: u8| arguments.get(number as usize).copied().unwrap_or(0);
        if other(self.argument) == 0 {
            return Extent::Nothing;
        }
        match self.size {
            Size::Bytes(bytes) => Extent::Bytes(bytes as u64),
            Size::Length { of, more } => Extent::Bytes(other(of).saturating_add(more as u64)),
            // Counts are `int` or `unsigned int`: the upper halves of their registers say nothing.
            Size::Times { count, bytes } => Extent::Bytes(other(count) as u32 as u64 * bytes as u64),
            Size::Bits { of, less } => {
                Extent::Bytes((other(of) as u32 as u64).saturating_sub(less as u64).div_ceil(64) * 8)
            }
            Size::Pages(of) => Extent::Bytes(other(of).div_ceil(crate::hazard::PAGE)),
            Size::Ioctl => ioctl(second as u32, third),
            Size::Fcntl => fcntl(second as u32),
            Size::Prctl => prctl_extent(arguments[0] as u32, self.argument),
            Size::Futex => futex(second as u32, self.argument),
            // ARCH_GET_FS and ARCH_GET_GS write a word; the numbers beside them take an address.
            Size::Arch
                if matches!(
                    arguments[0] as u32,
                    0x1003 | 0x1004 | 0x1021..=0x1025 | 0x4001 | 0x4003 | 0x5005
                ) =>
            {
                Extent::Bytes(8)
            }
            Size::Arch => Extent::Nothing,
            Size::Unknown => Extent::Unknown(UNKNOWN_BYTES),
            Size::Text
            | Size::TextOrPage
            | Size::Texts
            | Size::Vectors(_)
            | Size::Message
            | Size::Messages(_)
            | Size::Pointed(_)
            | Size::Inside(_)
            | Size::Clone3
            | Size::Mask => Extent::InMemory,
        }
    }
}

/// A request names its size since Linux 0.99; older ones have none, and structures with pointers
/// of their own cannot be told from others.
fn ioctl(request: u32, argument: u64) -> Extent {
    const SMALLEST_ADDRESS: u64 = 65536;
    /// Bytes of the largest structure of a request of the old form (termios and its like).
    const OLD_FORM: u64 = 64;
    if argument < SMALLEST_ADDRESS {
        return Extent::Nothing;
    }
    let bytes = (request >> 16 & 0x3fff) as u16;
    match request {
        // Terminals, pipes, sockets: TCGETS to TIOCGEXCL, FIONREAD among them.
        0x5401..=0x5440 | 0x5450..=0x5460 => Extent::Bytes(OLD_FORM),
        _ if request >> 30 != 0 => match ((request >> 8) as u8, request as u8) {
            // The real-time clock and userfaultfd; flags and versions of files; the random device
            // but for RNDADDENTROPY: structures without pointers, and without a tail.
            (b'p' | 0xaa, _) | (b'f', 1..=3) | (b'R', 0 | 1 | 4 | 6 | 7) => Extent::Bytes(bytes as u64),
            _ => Extent::Unknown(bytes.max(UNKNOWN_BYTES)),
        },
        _ => Extent::Unknown(UNKNOWN_BYTES),
    }
}

/// Bytes in which pointers are looked for where nothing says how many there are.
const UNKNOWN_BYTES: u16 = 128;

fn fcntl(command: u32) -> Extent {
    match command {
        raw::F_GETLK
        | raw::F_SETLK
        | raw::F_SETLKW
        | raw::F_OFD_GETLK
        | raw::F_OFD_SETLK
        | raw::F_OFD_SETLKW => Extent::Bytes(32),
        raw::F_GETOWN_EX | raw::F_SETOWN_EX => Extent::Bytes(8),
        // F_GETOWNER_UIDS; F_GET_RW_HINT and its neighbours.
        17 => Extent::Bytes(8),
        1035..=1038 => Extent::Bytes(8),
        // F_CREATED_QUERY and the numbers of flags and descriptors.
        0..=4 | 8..=11 | 1024..=1034 | 1039.. => Extent::Nothing,
        _ => Extent::Unknown(UNKNOWN_BYTES),
    }
}

fn prctl_extent(operation: u32, argument: u8) -> Extent {
    match (operation, argument) {
        (prctl::PR_SET_NAME | prctl::PR_GET_NAME, 1) => Extent::Bytes(16),
        (
            prctl::PR_GET_PDEATHSIG
            | prctl::PR_GET_UNALIGN
            | prctl::PR_GET_FPEMU
            | prctl::PR_GET_FPEXC
            | prctl::PR_GET_TSC
            | prctl::PR_GET_ENDIAN
            | prctl::PR_GET_CHILD_SUBREAPER,
            1,
        ) => Extent::Bytes(4),
        (prctl::PR_GET_TID_ADDRESS, 1) => Extent::Bytes(8),
        (prctl::PR_SET_SECCOMP, 2) | (prctl::PR_SET_MM, _) => Extent::Unknown(UNKNOWN_BYTES),
        (
            prctl::PR_SET_PDEATHSIG
            | prctl::PR_GET_DUMPABLE
            | prctl::PR_SET_DUMPABLE
            | prctl::PR_SET_KEEPCAPS
            | prctl::PR_SET_NO_NEW_PRIVS
            | prctl::PR_GET_NO_NEW_PRIVS
            | prctl::PR_SET_SECCOMP
            | prctl::PR_CAPBSET_READ
            | prctl::PR_CAPBSET_DROP
            | prctl::PR_SET_TIMERSLACK
            | prctl::PR_SET_CHILD_SUBREAPER
            | prctl::PR_SET_PTRACER
            | prctl::PR_SET_NAME
            | prctl::PR_GET_NAME,
            _,
        ) => Extent::Nothing,
        // The name of a mapping: at most 80 bytes, but its length is in its text.
        _ => Extent::Unknown(UNKNOWN_BYTES),
    }
}

fn futex(operation: u32, argument: u8) -> Extent {
    let command = operation & 0x7f;
    match (argument, command) {
        // FUTEX_WAIT, LOCK_PI, WAIT_BITSET, WAIT_REQUEUE_PI, LOCK_PI2: argument 3 is a time.
        (3, 0 | 6 | 9 | 11 | 13) => Extent::Bytes(16),
        // REQUEUE, CMP_REQUEUE, WAKE_OP, WAIT_REQUEUE_PI, CMP_REQUEUE_PI: argument 4 is a futex.
        (4, 3 | 4 | 5 | 11 | 12) => Extent::Bytes(4),
        _ => Extent::Nothing,
    }
}
