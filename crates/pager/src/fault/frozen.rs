//! Whose fault is served while a fork freezes the page words.

/// Whose fault is served in the freeze.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// A fault of this process: the actions of its threads in the freeze count.
    Parent,
    /// A fault of the child: only actions from before the fork count.
    Child,
}
