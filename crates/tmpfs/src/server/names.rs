//! Renames and further names.

use super::Server;
use crate::{
    answers::{answer, fuse},
    inode::Inode,
    limits::entry_memory,
    namespace::RenameMode,
    tmpfs::{New, NewContent},
};
use fuser::{FileType, INodeNo, RenameFlags, ReplyEmpty, Request};
use rustix::io::Errno;
use std::{ffi::OsStr, os::unix::ffi::OsStrExt, sync::Arc};

/// Does link(2).
pub fn link(server: &Server, inode: INodeNo, parent: INodeNo, name: &OsStr) -> Result<Arc<Inode>, Errno> {
    let inode = server.tmpfs.inode(inode.0)?;
    let parent = server.tmpfs.inode(parent.0)?;
    let charge = server.tmpfs.memory.charge(entry_memory(name.as_bytes()))?;
    server.tmpfs.namespace.insert(&parent, name.as_bytes(), &inode, charge)?;
    Ok(inode)
}

/// Does renameat2(2). Each side is a directory and a name in it.
pub fn rename(
    server: &Server,
    request: &Request,
    (from, from_name): (INodeNo, &OsStr),
    (to, to_name): (INodeNo, &OsStr),
    flags: RenameFlags,
    reply: ReplyEmpty,
) {
    let from = answer!(reply, server.tmpfs.inode(from.0));
    let to = answer!(reply, server.tmpfs.inode(to.0));
    let whiteout = flags.contains(RenameFlags::RENAME_WHITEOUT);
    let mode = match flags - RenameFlags::RENAME_WHITEOUT {
        flags if flags.is_empty() => RenameMode::Replace,
        RenameFlags::RENAME_NOREPLACE => RenameMode::Keep,
        RenameFlags::RENAME_EXCHANGE if !whiteout => RenameMode::Exchange,
        _ => return reply.error(fuse(Errno::INVAL)),
    };
    // A whiteout replaces the renamed file for an overlay. Its inode is reserved beforehand, so
    // that no failure can follow the rename.
    let (from_name, to_name) = (from_name.as_bytes(), to_name.as_bytes());
    let reserved = if whiteout { Some(answer!(reply, server.tmpfs.reserve(from_name))) } else { None };
    let memory = entry_memory(to_name);
    // A name that is not longer than the old one takes over its memory.
    let charge = if to_name.len() > from_name.len() {
        answer!(reply, server.tmpfs.memory.charge(memory))
    } else {
        server.tmpfs.memory.charge_anyway(memory)
    };
    let renamed = server.tmpfs.namespace.rename((&from, from_name), (&to, to_name), mode, charge);
    answer!(reply, renamed);
    if let Some(reserved) = reserved {
        let owner = (request.uid(), request.gid());
        let new = New { content: NewContent::Node(FileType::CharDevice, 0), permissions: 0, umask: 0, owner };
        answer!(reply, server.tmpfs.make_reserved(reserved, &from, from_name, new));
    }
    reply.ok();
}
