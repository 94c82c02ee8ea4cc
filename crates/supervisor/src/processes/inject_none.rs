//! There is no gate on this architecture, so the agent is put into no program.

use rustix::fd::OwnedFd;
use std::{convert::Infallible, io, marker::PhantomData};

/// What would put the agent into programs.
pub struct Injector(Infallible);

/// A thread that would be traced.
pub struct Tracee<'a>(Infallible, PhantomData<&'a ()>);

/// Why the agent is not in a program.
#[derive(Debug, thiserror::Error)]
pub enum NotInjected {
    /// Nothing was executed.
    #[error("nothing was executed")]
    NoExec,
    /// The program runs with a privilege.
    #[error("it runs with a privilege")]
    Privileged,
}

impl Injector {
    /// Never, since no way of this architecture's has a gate.
    ///
    /// # Errors
    /// Always.
    pub fn of(_agent: &OwnedFd, _name: Option<String>, _group: String) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn trace(&self, _process: u32, _thread: u32) -> Result<Tracee<'_>, NotInjected> {
        match self.0 {}
    }

    /// Never called.
    pub fn take_stopped(&self, _is_stopped: impl Fn(u32) -> bool) -> Vec<u32> {
        match self.0 {}
    }

    /// Never called.
    pub fn hand_over(&self, _thread: u32, _status: i32) -> bool {
        match self.0 {}
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn follow(&self, tracee: Tracee<'_>, _said: &OwnedFd) -> Result<(), NotInjected> {
        match tracee.0 {}
    }
}
