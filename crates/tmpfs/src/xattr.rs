//! The extended attributes of an inode, as tmpfs has them: `user.`, `trusted.` and `security.` (the kernel has checked who may), and its
//! access control lists, which are set by [`State::set_acl`](crate::inode::State::set_acl) alone.

use crate::acl::{Acl, Which};
use crate::limits::Charge;
use rustix::io::Errno;
use std::collections::BTreeMap;

/// What `setxattr` may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetMode {
    /// Make or replace.
    Any,
    /// `XATTR_CREATE`: it must not be there.
    Create,
    /// `XATTR_REPLACE`: it must be there.
    Replace,
}

type Bytes = Box<[u8]>;

/// Name, value and memory of each; most files have none.
#[derive(Debug, Default)]
pub struct Xattrs(BTreeMap<Bytes, (Bytes, Charge)>);

const CAPABILITIES: &[u8] = b"security.capability";

impl Xattrs {
    /// The value of one.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.0.get(name).map(|(value, _)| &**value)
    }

    /// Sets one. `charge` is its memory.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for a family that cannot be set like this, `EEXIST` and `ENODATA` as the mode asks.
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

    /// Sets an access control list, whose value is valid. `charge` is its memory.
    pub fn set_acl(&mut self, which: Which, value: Vec<u8>, charge: Charge) {
        self.0.insert(which.name().into(), (value.into(), charge));
    }

    /// An access control list.
    pub fn acl(&self, which: Which) -> Option<Acl> {
        Acl::parse(self.get(which.name())?).ok()?
    }

    /// Puts another list of the same length in the place of one.
    pub fn replace_acl(&mut self, which: Which, acl: &Acl) {
        if let Some((value, _)) = self.0.get_mut(which.name()) {
            *value = acl.value().into();
        }
    }

    /// Removes one.
    ///
    /// # Errors
    /// `ENODATA`: it is not there.
    pub fn remove(&mut self, name: &[u8]) -> Result<(), Errno> {
        self.0.remove(name).map(drop).ok_or(Errno::NODATA)
    }

    /// Removes file capabilities; were there any?
    pub fn remove_capabilities(&mut self) -> bool {
        self.remove(CAPABILITIES).is_ok()
    }

    /// All names, each with a zero behind it, as listxattr(2) has them. Those of `trusted.` only where `trusted` says so.
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

/// Are names that only the administrator may read listed?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrustedNames {
    /// Yes.
    Shown,
    /// No.
    Hidden,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Memory;

    fn free() -> Charge {
        Memory::default().charge_anyway(0)
    }

    #[test]
    fn modes_are_kept() {
        let mut all = Xattrs::default();
        assert_eq!(all.set(b"user.a", b"1", SetMode::Replace, free()), Err(Errno::NODATA));
        assert_eq!(all.set(b"user.a", b"1", SetMode::Create, free()), Ok(()));
        assert_eq!(all.set(b"user.a", b"2", SetMode::Create, free()), Err(Errno::EXIST));
        assert_eq!(all.get(b"user.a"), Some(&b"1"[..]));
        assert_eq!(all.set(b"user.a", b"", SetMode::Any, free()), Ok(()));
        assert_eq!(all.get(b"user.a"), Some(&b""[..]));
        assert_eq!(all.remove(b"user.a"), Ok(()));
        assert_eq!(all.remove(b"user.a"), Err(Errno::NODATA));
        assert!(all.0.is_empty(), "nothing is left behind");
    }

    #[test]
    fn only_known_families() {
        let mut all = Xattrs::default();
        for name in [&b"system.posix_acl_access"[..], b"user", b"other.x", b""] {
            assert_eq!(all.set(name, b"", SetMode::Any, free()), Err(Errno::OPNOTSUPP));
        }
    }

    #[test]
    fn trusted_names_are_hidden_from_others() {
        let mut all = Xattrs::default();
        all.set(b"user.a", b"", SetMode::Any, free()).expect("set");
        all.set(b"trusted.b", b"", SetMode::Any, free()).expect("set");
        all.set(b"security.capability", b"x", SetMode::Any, free()).expect("set");
        assert_eq!(all.names(TrustedNames::Hidden), b"security.capability\0user.a\0");
        assert!(all.remove_capabilities());
        assert!(!all.remove_capabilities());
        assert_eq!(all.names(TrustedNames::Shown), b"trusted.b\0user.a\0");
    }
}
