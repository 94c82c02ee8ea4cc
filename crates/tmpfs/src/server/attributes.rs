//! Attributes, extended ones among them; and those of the root by which people and programs look at the mount and act on it.

use super::{FOREVER, Server};
use crate::{
    answers::{reply_xattr, time},
    contents::{self, errno},
    control,
    limits::XATTR_MEMORY,
    tmpfs::ROOT,
    xattr::{SetMode, TrustedNames},
};
use fuser::{INodeNo, ReplyAttr, ReplyEmpty, ReplyXattr, Request, TimeOrNow};
use rustix::io::Errno;
use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

/// What setattr is to change.
pub struct Changes {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<TimeOrNow>,
    pub mtime: Option<TimeOrNow>,
}

/// chmod(2), chown(2), truncate(2), utimensat(2).
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
        state.permissions = (mode & 0o7777) as u16;
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

/// setxattr(2).
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
    let mut state = inode.state();
    answer!(reply, state.xattrs.set(name.as_bytes(), value, mode, charge));
    state.touch_attributes();
    reply.ok();
}

/// getxattr(2).
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

/// listxattr(2). Those of [`control`] are not named, so nothing copies them.
pub fn list_extended(server: &Server, request: &Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
    let inode = answer!(reply, server.tmpfs.inode(inode.0));
    let trusted = if request.uid() == 0 { TrustedNames::Shown } else { TrustedNames::Hidden };
    let names = inode.state().xattrs.names(trusted);
    reply_xattr(&names, size, reply);
}

/// removexattr(2).
pub fn remove_extended(server: &Server, request: &Request, inode: INodeNo, name: &OsStr, reply: ReplyEmpty) {
    let inode = answer!(reply, server.tmpfs.inode(inode.0));
    if inode.number == ROOT && control::is_control(name.as_bytes()) {
        answer!(reply, server.tmpfs.control.remove(&server.tmpfs, request.uid(), name.as_bytes()));
        return reply.ok();
    }
    let mut state = inode.state();
    answer!(reply, state.xattrs.remove(name.as_bytes()));
    state.touch_attributes();
    reply.ok();
}
