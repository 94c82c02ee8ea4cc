//! The extended attributes of an inode, as tmpfs has them: `user.`, `trusted.` and `security.` (the
//! kernel has checked permissions), and its access control lists, which only
//! [`State::set_acl`](crate::inode::State::set_acl) sets.

use crate::acl::{Acl, Which};
use crate::limits::Charge;
use rustix::io::Errno;
use std::collections::BTreeMap;

/// The condition of a `setxattr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetMode {
    /// The attribute is made or replaced.
    Any,
    /// `XATTR_CREATE`: the attribute must not exist.
    Create,
    /// `XATTR_REPLACE`: the attribute must exist.
    Replace,
}

type Bytes = Box<[u8]>;

/// The name, value and memory of each attribute. Most files have none.
#[derive(Debug, Default)]
pub struct Xattrs(BTreeMap<Bytes, (Bytes, Charge)>);

const CAPABILITIES: &[u8] = b"security.capability";

impl Xattrs {
    /// Returns the value of an attribute.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.0.get(name).map(|(value, _)| &**value)
    }

    /// Sets an attribute. `charge` is its memory.
    ///
    /// # Errors
    /// `EOPNOTSUPP`: the name's family cannot be set like this; `EEXIST` and `ENODATA` as `mode`
    /// demands.
    pub fn set(&mut self, name: &[u8], value: &[u8], mode: SetMode, charge: Charge) -> Result<(), Errno> {
        let family =
            [&b"user."[..], b"trusted.", b"security."].into_iter().any(|family| name.starts_with(family));
        if !family {
            return Err(Errno::OPNOTSUPP);
        }
        match (mode, self.get(name)) {
            (SetMode::Create, Some(_)) => return Err(Errno::EXIST),
            (SetMode::Replace, None) => return Err(Errno::NODATA),
            _ => {}
        }
        self.0.insert(name.into(), (value.into(), charge));
        Ok(())
    }

    /// Sets an access control list with a valid value. `charge` is its memory.
    pub fn set_acl(&mut self, which: Which, value: Vec<u8>, charge: Charge) {
        self.0.insert(which.name().into(), (value.into(), charge));
    }

    /// Returns an access control list.
    pub fn acl(&self, which: Which) -> Option<Acl> {
        Acl::parse(self.get(which.name())?).ok()?
    }

    /// Replaces an access control list by another of the same length.
    pub fn replace_acl(&mut self, which: Which, acl: &Acl) {
        if let Some((value, _)) = self.0.get_mut(which.name()) {
            *value = acl.value().into();
        }
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// `ENODATA`: it does not exist.
    pub fn remove(&mut self, name: &[u8]) -> Result<(), Errno> {
        self.0.remove(name).map(drop).ok_or(Errno::NODATA)
    }

    /// Removes file capabilities.
    ///
    /// # Errors
    /// `ENODATA`: there were none.
    pub fn remove_capabilities(&mut self) -> Result<(), Errno> {
        self.remove(CAPABILITIES)
    }

    /// Returns all names, each followed by a zero byte, as listxattr(2) does.
    pub fn names(&self, trusted: TrustedNames) -> Vec<u8> {
        let mut list = Vec::new();
        for name in self.0.keys() {
            if trusted == TrustedNames::Shown || !name.starts_with(b"trusted.") {
                list.extend_from_slice(name);
                list.push(0);
            }
        }
        list
    }
}

/// Whether names that only the administrator may read are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrustedNames {
    /// They are listed.
    Shown,
    /// They are left out.
    Hidden,
}

#[cfg(test)]
mod tests;
