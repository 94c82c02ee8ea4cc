//! The two memories of a group, as processes map them: the segment, which every member writes, and
//! the decisions, which nobody writes but the process that made them.

use super::mapped::{Mapped, Others};
use folioswap_group::{
    decisions::{Decisions, DecisionsWriter},
    group::Group,
    segment::Segment,
};
use rustix::{
    fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    fs::{Mode, OFlags, open},
    io::Errno,
};

/// The memories of a new group: their descriptors, and mappings for writing. The supervisor has
/// them from its fork.
pub struct GroupMemory {
    decisions: Mapped<Decisions>,
    /// Sealed against all writing.
    decisions_fd: OwnedFd,
    segment: Mapped<Segment>,
    segment_fd: OwnedFd,
    segment_read_only: OwnedFd,
}

impl GroupMemory {
    /// Makes all-zero memories that nobody can resize.
    ///
    /// # Errors
    /// Of memfd_create(2) and mmap(2).
    pub fn create() -> Result<Self, Errno> {
        let (decisions_fd, decisions) = Mapped::create(c"folioswap-decisions", Others::Read)?;
        let (segment_fd, segment) = Mapped::create(c"folioswap-group", Others::Write)?;
        let path = format!("/proc/self/fd/{}", segment_fd.as_raw_fd());
        let segment_read_only = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(GroupMemory { decisions, decisions_fd, segment, segment_fd, segment_read_only })
    }

    /// Both memories, for reading decisions.
    pub fn group(&self) -> Group<'_> {
        Group { decisions: &self.decisions, segment: &self.segment }
    }

    /// The right to decide.
    pub fn writer(&self) -> DecisionsWriter<'_> {
        // SAFETY: `create` mapped the decisions for writing before it sealed them.
        unsafe { DecisionsWriter::new(&self.decisions) }
    }

    /// The descriptors that a member gets, in the order of the welcome.
    pub fn for_members(&self) -> [BorrowedFd<'_>; 2] {
        [self.decisions_fd.as_fd(), self.segment_fd.as_fd()]
    }

    /// The descriptors for processes that only look (`swapon --show`), in the order of the answer.
    pub fn for_viewers(&self) -> [BorrowedFd<'_>; 2] {
        [self.decisions_fd.as_fd(), self.segment_read_only.as_fd()]
    }

    /// All descriptors.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        [self.decisions_fd.as_fd(), self.segment_fd.as_fd(), self.segment_read_only.as_fd()]
    }

    /// Maps both once more, for another thread, which decides nothing.
    ///
    /// # Errors
    /// Of mmap(2).
    pub fn map_again(&self) -> Result<GroupView, Errno> {
        Ok(GroupView {
            decisions: Mapped::for_reading(&self.decisions_fd)?,
            segment: Mapped::for_writing(&self.segment_fd)?,
        })
    }
}

/// The memories of a group where nothing is decided.
pub struct GroupView {
    decisions: Mapped<Decisions>,
    segment: Mapped<Segment>,
}

impl GroupView {
    /// Maps the memories of another process's group for reading.
    ///
    /// # Errors
    /// `EINVAL` for files that are too short, not sealed against shrinking, or of another version.
    pub fn for_reading(decisions: impl AsFd, segment: impl AsFd) -> Result<Self, Errno> {
        let decisions = Mapped::<Decisions>::for_reading(decisions)?;
        decisions.check().map_err(|_| Errno::INVAL)?;
        Ok(GroupView { decisions, segment: Mapped::for_reading(segment)? })
    }

    /// Both memories.
    pub fn group(&self) -> Group<'_> {
        Group { decisions: &self.decisions, segment: &self.segment }
    }
}

#[cfg(test)]
mod tests;
