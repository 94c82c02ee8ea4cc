//! Attributes: ordinary and extended ones, access control lists, and the control attributes of the
//! root.

use super::{FOREVER, Server};
use crate::{
    acl::Which,
    answers::{answer, reply_xattr, time},
    contents::{self, errno},
    control,
    inode::PAGE_SIZE,
    limits::XATTR_MEMORY,
    namespace::NAME_MAX,
    tmpfs::{ROOT, Tmpfs},
    xattr::{SetMode, TrustedNames},
};
use fuser::{INodeNo, ReplyAttr, ReplyEmpty, ReplyStatfs, ReplyXattr, Request, TimeOrNow};
use rustix::io::Errno;
use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

/// The changes of a setattr request.
pub struct Changes {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<TimeOrNow>,
    pub mtime: Option<TimeOrNow>,
}

/// Does chmod(2), chown(2), truncate(2) and utimensat(2).
pub fn set(server: &Server, request: &Request, inode: INodeNo, changes: Changes, reply: ReplyAttr) {
    let Changes { mode, uid, gid, size, atime, mtime } = changes;
    let inode = answer!(reply, server.tmpfs.inode(inode.0));
    let mut contents_changed = false;
    if let Some(size) = size {
        let object = answer!(reply, inode.object().ok_or(Errno::INVAL));
        let before = object.size();
        answer!(reply, object.set_size(size).map_err(errno));
        server.cache().gone(inode.number, contents::pages(0, size).end);
        contents_changed = before != size;
    }
    let mut state = inode.state();
    if let Some(mode) = mode {
        state.set_permissions((mode & 0o7777) as u16);
    }
    if uid.is_some() || gid.is_some() || (size.is_some() && request.uid() != 0) {
        state.drop_privileges(inode.kind());
    }
    state.uid = uid.unwrap_or(state.uid);
    state.gid = gid.unwrap_or(state.gid);
    state.touch_attributes();
    if contents_changed {
        state.mtime = state.ctime;
    }
    state.atime = atime.map_or(state.atime, time);
    state.mtime = mtime.map_or(state.mtime, time);
    let attributes = inode.attributes_of(&state);
    drop(state);
    reply.attr(&FOREVER, &attributes);
}

/// Does setxattr(2).
pub fn set_extended(
    server: &Server,
    request: &Request,
    inode: INodeNo,
    (name, value): (&OsStr, &[u8]),
    flags: i32,
    reply: ReplyEmpty,
) {
    let inode = answer!(reply, server.tmpfs.inode(inode.0));
    let mode = match flags & (libc::XATTR_CREATE | libc::XATTR_REPLACE) {
        0 => SetMode::Any,
        libc::XATTR_CREATE => SetMode::Create,
        libc::XATTR_REPLACE => SetMode::Replace,
        _ => return reply.error(crate::answers::fuse(Errno::INVAL)),
    };
    if inode.number == ROOT && control::is_control(name.as_bytes()) {
        answer!(reply, server.tmpfs.control.set(&server.tmpfs, request.uid(), name.as_bytes(), value));
        return reply.ok();
    }
    let memory = XATTR_MEMORY + (name.len() + value.len()) as u64;
    let charge = answer!(reply, server.tmpfs.memory.charge(memory));
    let acl = Which::of(name.as_bytes());
    // Membership is determined before the lock is taken, because that reads a file.
    let may_keep_group = acl.is_none() || request.uid() == 0 || is_member(request, inode.state().gid);
    let mut state = inode.state();
    match acl {
        Some(which) => answer!(reply, state.set_acl(inode.kind(), which, value, charge)),
        None => answer!(reply, state.xattrs.set(name.as_bytes(), value, mode, charge)),
    }
    if acl == Some(Which::Access) && !may_keep_group {
        state.permissions &= !0o2000;
    }
    state.touch_attributes();
    reply.ok();
}

/// Returns whether the caller is in this group. The kernel knows, but `fuser` has no way to learn
/// it. A caller that cannot be examined counts as no member.
fn is_member(request: &Request, group: u32) -> bool {
    let status = || std::fs::read_to_string(format!("/proc/{}/status", request.pid())).ok();
    let is_listed = |status: String| {
        let groups = status.lines().find_map(|line| line.strip_prefix("Groups:"));
        groups.is_some_and(|groups| groups.split_whitespace().any(|other| other.parse() == Ok(group)))
    };
    request.gid() == group || status().is_some_and(is_listed)
}

/// Does getxattr(2).
pub fn extended(server: &Server, inode: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
    let inode = answer!(reply, server.tmpfs.inode(inode.0));
    if inode.number == ROOT && control::is_control(name.as_bytes()) {
        let value = answer!(reply, server.tmpfs.control.get(&server.tmpfs, name.as_bytes()));
        return reply_xattr(value.as_bytes(), size, reply);
    }
    let state = inode.state();
    let value = answer!(reply, state.xattrs.get(name.as_bytes()).ok_or(Errno::NODATA));
    reply_xattr(value, size, reply);
}

/// Does listxattr(2). Control attributes are not listed, so that no program copies them.
pub fn list_extended(server: &Server, request: &Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
    let inode = answer!(reply, server.tmpfs.inode(inode.0));
    let trusted = if request.uid() == 0 { TrustedNames::Shown } else { TrustedNames::Hidden };
    let names = inode.state().xattrs.names(trusted);
    reply_xattr(&names, size, reply);
}

/// Does statfs(2).
pub fn of_file_system(tmpfs: &Tmpfs, reply: ReplyStatfs) {
    let block = PAGE_SIZE;
    let (blocks, used) = (tmpfs.size() / block, tmpfs.space.statistics().content / block);
    let free = blocks.saturating_sub(used);
    let inodes = &tmpfs.inodes;
    let inodes_free = inodes.max().saturating_sub(inodes.used());
    let (size, name_max) = (block as u32, NAME_MAX as u32);
    reply.statfs(blocks, free, free, inodes.max(), inodes_free, size, name_max, size);
}

/// Does removexattr(2).
pub fn remove_extended(server: &Server, request: &Request, inode: INodeNo, name: &OsStr, reply: ReplyEmpty) {
    let inode = answer!(reply, server.tmpfs.inode(inode.0));
    if inode.number == ROOT && control::is_control(name.as_bytes()) {
        answer!(reply, server.tmpfs.control.remove(&server.tmpfs, request.uid(), name.as_bytes()));
        return reply.ok();
    }
    let mut state = inode.state();
    let removed = state.xattrs.remove(name.as_bytes());
    // Removing an access control list that does not exist succeeds.
    if Which::of(name.as_bytes()).is_none() {
        answer!(reply, removed);
    }
    state.touch_attributes();
    reply.ok();
}
