//! What the supervisor leaves for the agent in a program into which it has put it: the [`Letter`]
//! at the lowest address of the stack, then the name of the group and the path of the agent.

/// The dynamic linker is musl's, which ends where it preloads the agent: it must not find it in
/// LD_PRELOAD.
pub const NO_PRELOAD: u64 = 1;

/// The words of the letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Letter {
    /// Where the program begins.
    pub entry: u64,
    /// Its stack pointer there.
    pub stack: u64,
    /// What it finds in `rdx`.
    pub third: u64,
    /// [`NO_PRELOAD`] or 0.
    pub flags: u64,
    /// Bytes of the group's name.
    pub group_bytes: u64,
    /// Bytes of the agent's path.
    pub agent_bytes: u64,
}

impl Letter {
    /// The words in the order in which they lie in memory.
    pub const fn words(&self) -> [u64; 6] {
        [self.entry, self.stack, self.third, self.flags, self.group_bytes, self.agent_bytes]
    }
}

const _: () = assert!(size_of::<Letter>() == size_of::<[u64; 6]>());
