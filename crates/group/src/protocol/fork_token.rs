//! The secret by which a forked child gets what its parent handed over for it.

/// 128 random bits, made by the parent for one fork. The child finds them in its copy of the
/// parent's memory; nobody else is told, since whoever names them gets the child's memory. So they
/// never lie in memory that other members can read, and no message shows them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ForkToken([u64; 2]);

impl ForkToken {
    /// No token: the process inherited nothing that its parent had swapped out.
    pub const NONE: ForkToken = ForkToken([0; 2]);

    /// The token of these random words; all zeroes are [`ForkToken::NONE`].
    pub const fn from_words(words: [u64; 2]) -> Self {
        ForkToken(words)
    }

    /// The token in the words of a message, the first two.
    pub const fn of_message([low, high, _]: [u64; 3]) -> Self {
        ForkToken([low, high])
    }

    /// The words of a message with this token.
    pub const fn message_words(self) -> [u64; 3] {
        let [low, high] = self.0;
        [low, high, 0]
    }

    /// The two words of the token.
    pub const fn words(self) -> [u64; 2] {
        self.0
    }

    /// Whether this is no token.
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }
}

impl core::fmt::Debug for ForkToken {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str(if self.is_none() { "ForkToken(none)" } else { "ForkToken(secret)" })
    }
}
