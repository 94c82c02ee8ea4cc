//! Whose fault is served while a fork freezes the page words.

/// Whose fault is served in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// This process's: what its threads did in the window counts.
    Parent,
    /// The child's: only what was done before the fork counts.
    Child,
}
