//! Directories: the inode of each name.
//!
//! One lock protects all of them. Before each request the kernel has locked the directories and
//! checked permissions, types and the sticky bit. This module checks only facts that the kernel
//! cannot know: whether a name exists, and whether a directory is empty.

use crate::{inode::Inode, limits::Charge};
use parking_lot::RwLock;
use rustix::io::Errno;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// The cookie of `.`, where a listing begins.
pub const COOKIE_DOT: u64 = 1;
/// The cookie of `..`.
pub const COOKIE_DOT_DOT: u64 = 2;
/// The longest name, as on other file systems.
pub const NAME_MAX: usize = 255;

/// A name and its inode.
pub struct Entry {
    /// The name.
    pub name: Arc<[u8]>,
    /// The inode.
    pub inode: Arc<Inode>,
    /// The memory of the name.
    _charge: Charge,
}

/// The names of one directory. A cookie is the position of a name in a listing. It is never reused,
/// so that a listing goes on correctly whatever changes meanwhile.
struct Directory {
    parent: u64,
    cookies: HashMap<Arc<[u8]>, u64>,
    entries: BTreeMap<u64, Entry>,
    next_cookie: u64,
}

/// All directories, by the number of their inode.
pub struct Namespace {
    directories: RwLock<HashMap<u64, Directory>>,
}

/// The treatment of a name that exists already when another is renamed to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// The name is replaced.
    Replace,
    /// `RENAME_NOREPLACE`: the rename fails.
    Keep,
    /// `RENAME_EXCHANGE`: the two names exchange their inodes.
    Exchange,
}

impl Directory {
    fn new(parent: u64) -> Self {
        Directory {
            parent,
            cookies: HashMap::new(),
            entries: BTreeMap::new(),
            next_cookie: COOKIE_DOT_DOT + 1,
        }
    }

    fn get(&self, name: &[u8]) -> Option<&Arc<Inode>> {
        self.cookies.get(name).map(|cookie| &self.entries[cookie].inode)
    }

    fn insert(&mut self, name: &[u8], inode: Arc<Inode>, charge: Charge) {
        let name: Arc<[u8]> = name.into();
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let replaced = self.cookies.insert(Arc::clone(&name), cookie);
        debug_assert!(replaced.is_none(), "a name is there once");
        self.entries.insert(cookie, Entry { name, inode, _charge: charge });
    }

    fn remove(&mut self, name: &[u8]) -> Option<Arc<Inode>> {
        let cookie = self.cookies.remove(name)?;
        self.entries.remove(&cookie).map(|entry| entry.inode)
    }

    /// Replaces the inode of a name.
    fn exchange(&mut self, name: &[u8], inode: Arc<Inode>) {
        if let Some(entry) = self.cookies.get(name).and_then(|cookie| self.entries.get_mut(cookie)) {
            entry.inode = inode;
        }
    }
}

type Directories = HashMap<u64, Directory>;

fn directory(all: &mut Directories, number: u64) -> Result<&mut Directory, Errno> {
    // A removed directory may still be open.
    all.get_mut(&number).ok_or(Errno::NOENT)
}

impl Namespace {
    /// Makes a root directory without names.
    pub fn new(root: u64) -> Self {
        Namespace { directories: RwLock::new(HashMap::from([(root, Directory::new(root))])) }
    }

    /// Returns the inode of a name.
    ///
    /// # Errors
    /// `ENOENT`, `ENAMETOOLONG`.
    pub fn lookup(&self, parent: u64, name: &[u8]) -> Result<Arc<Inode>, Errno> {
        check_name(name)?;
        let all = self.directories.read();
        all.get(&parent).and_then(|directory| directory.get(name)).cloned().ok_or(Errno::NOENT)
    }

    /// Returns whether this is a directory that has not been removed.
    pub fn is_live(&self, number: u64) -> bool {
        self.directories.read().contains_key(&number)
    }

    /// Gives an inode a name: its first, or a further one. `charge` is the name's memory.
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT` where the directory was removed, `ENAMETOOLONG`.
    pub fn insert(
        &self,
        parent: &Inode,
        name: &[u8],
        inode: &Arc<Inode>,
        charge: Charge,
    ) -> Result<(), Errno> {
        check_name(name)?;
        let mut all = self.directories.write();
        let names = directory(&mut all, parent.number)?;
        if names.get(name).is_some() {
            return Err(Errno::EXIST);
        }
        names.insert(name, Arc::clone(inode), charge);
        count_entry(parent, inode, Change::Added);
        if inode.is_directory() {
            all.insert(inode.number, Directory::new(parent.number));
        } else {
            let mut state = inode.state();
            state.links += 1;
            state.touch_attributes();
        }
        Ok(())
    }

    /// Removes a name of an inode that is no directory.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`.
    pub fn unlink(&self, parent: &Inode, name: &[u8]) -> Result<(), Errno> {
        let mut all = self.directories.write();
        let names = directory(&mut all, parent.number)?;
        if names.get(name).ok_or(Errno::NOENT)?.is_directory() {
            return Err(Errno::ISDIR);
        }
        let inode = names.remove(name).ok_or(Errno::NOENT)?;
        drop_link(parent, &inode);
        drop(all);
        // If this was its last reference, the inode is dropped here, outside the lock: freeing a
        // large file takes time.
        drop(inode);
        Ok(())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`.
    pub fn rmdir(&self, parent: &Inode, name: &[u8]) -> Result<(), Errno> {
        let mut all = self.directories.write();
        let child = Arc::clone(directory(&mut all, parent.number)?.get(name).ok_or(Errno::NOENT)?);
        if !child.is_directory() {
            return Err(Errno::NOTDIR);
        }
        if !directory(&mut all, child.number)?.entries.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        directory(&mut all, parent.number)?.remove(name);
        all.remove(&child.number);
        drop_link(parent, &child);
        Ok(())
    }

    /// Renames. `charge` is the memory of the new name.
    ///
    /// # Errors
    /// `ENOENT`, `EEXIST`, `ENOTEMPTY`, `EISDIR`, `ENOTDIR`; `EINVAL` where a directory would be
    /// moved into itself.
    pub fn rename(
        &self,
        (from, from_name): (&Inode, &[u8]),
        (to, to_name): (&Inode, &[u8]),
        mode: RenameMode,
        charge: Charge,
    ) -> Result<(), Errno> {
        check_name(to_name)?;
        let mut all = self.directories.write();
        let moved = Arc::clone(directory(&mut all, from.number)?.get(from_name).ok_or(Errno::NOENT)?);
        let there = directory(&mut all, to.number)?.get(to_name).cloned();
        if is_within(&all, to.number, moved.number) {
            return Err(Errno::INVAL);
        }
        match (&there, mode) {
            (Some(_), RenameMode::Keep) => return Err(Errno::EXIST),
            (None, RenameMode::Exchange) => return Err(Errno::NOENT),
            (Some(there), RenameMode::Exchange) => {
                if is_within(&all, from.number, there.number) {
                    return Err(Errno::INVAL);
                }
                return exchange(&mut all, (from, from_name, &moved), (to, to_name, there));
            }
            (Some(there), RenameMode::Replace) => {
                if Arc::ptr_eq(there, &moved) {
                    return Ok(()); // Two names of one file: as POSIX has it, both stay.
                }
                match (moved.is_directory(), there.is_directory()) {
                    (true, false) => return Err(Errno::NOTDIR),
                    (false, true) => return Err(Errno::ISDIR),
                    (true, true) if !directory(&mut all, there.number)?.entries.is_empty() => {
                        return Err(Errno::NOTEMPTY);
                    }
                    _ => {}
                }
                directory(&mut all, to.number)?.remove(to_name);
                if there.is_directory() {
                    all.remove(&there.number);
                }
                drop_link(to, there);
            }
            (None, _) => {}
        }
        directory(&mut all, from.number)?.remove(from_name);
        count_entry(from, &moved, Change::Removed);
        directory(&mut all, to.number)?.insert(to_name, Arc::clone(&moved), charge);
        count_entry(to, &moved, Change::Added);
        if moved.is_directory() {
            directory(&mut all, moved.number)?.parent = to.number;
        }
        moved.state().touch_attributes();
        drop(all);
        drop(there);
        Ok(())
    }

    /// Calls `each` with the cookie and the entry of every name behind the cookie `after`, until it
    /// returns [`Flow::Enough`]. `.` and `..` come first.
    ///
    /// # Errors
    /// `ENOENT`: the directory was removed.
    pub fn list(
        &self,
        number: u64,
        after: u64,
        mut each: impl FnMut(u64, Listed<'_>) -> Flow,
    ) -> Result<(), Errno> {
        let all = self.directories.read();
        let directory = all.get(&number).ok_or(Errno::NOENT)?;
        for (cookie, name, number) in
            [(COOKIE_DOT, &b"."[..], number), (COOKIE_DOT_DOT, &b".."[..], directory.parent)]
        {
            if cookie > after && each(cookie, Listed::Directory { name, number }) == Flow::Enough {
                return Ok(());
            }
        }
        for (&cookie, entry) in directory.entries.range(after + 1..) {
            if each(cookie, Listed::Entry(entry)) == Flow::Enough {
                break;
            }
        }
        Ok(())
    }
}

/// One line of a listing.
pub enum Listed<'a> {
    /// `.` or `..`.
    Directory {
        /// The name.
        name: &'a [u8],
        /// The number of its inode.
        number: u64,
    },
    /// A name.
    Entry(&'a Entry),
}

/// Whether a listing goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The listing goes on.
    More,
    /// The listing ends.
    Enough,
}

fn check_name(name: &[u8]) -> Result<(), Errno> {
    if name.len() > NAME_MAX { Err(Errno::NAMETOOLONG) } else { Ok(()) }
}

#[derive(Clone, Copy)]
enum Change {
    Added,
    Removed,
}

/// Updates a directory after a name was added or removed.
fn count_entry(parent: &Inode, child: &Inode, change: Change) {
    let mut state = parent.state();
    let subdirectories = u32::from(child.is_directory());
    match change {
        Change::Added => (state.entries, state.links) = (state.entries + 1, state.links + subdirectories),
        Change::Removed => (state.entries, state.links) = (state.entries - 1, state.links - subdirectories),
    }
    state.touch_contents();
}

/// Updates a directory and an inode after a name of the inode was removed for good.
fn drop_link(parent: &Inode, child: &Inode) {
    count_entry(parent, child, Change::Removed);
    let mut state = child.state();
    state.links = if child.is_directory() { 0 } else { state.links - 1 };
    state.touch_attributes();
}

/// Returns whether `number` is the directory `ancestor`, or lies below it.
fn is_within(all: &Directories, mut number: u64, ancestor: u64) -> bool {
    loop {
        if number == ancestor {
            return true;
        }
        match all.get(&number) {
            Some(directory) if directory.parent != number => number = directory.parent,
            _ => return false,
        }
    }
}

fn exchange(
    all: &mut Directories,
    (from, from_name, moved): (&Inode, &[u8], &Arc<Inode>),
    (to, to_name, there): (&Inode, &[u8], &Arc<Inode>),
) -> Result<(), Errno> {
    directory(all, from.number)?.exchange(from_name, Arc::clone(there));
    directory(all, to.number)?.exchange(to_name, Arc::clone(moved));
    for (parent, gone, come) in [(from, moved, there), (to, there, moved)] {
        count_entry(parent, gone, Change::Removed);
        count_entry(parent, come, Change::Added);
    }
    for (inode, parent) in [(moved, to), (there, from)] {
        if inode.is_directory() {
            directory(all, inode.number)?.parent = parent.number;
        }
        inode.state().touch_attributes();
    }
    Ok(())
}
