//! Listings of directories.

use super::{FOREVER, GENERATION, Server};
use crate::{
    answers::{answer, nothing},
    namespace::{Flow, Listed},
};
use fuser::{FileType, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use std::{ffi::OsStr, os::unix::ffi::OsStrExt, time::Duration};

/// Lists names, numbers and types.
pub fn names(server: &Server, inode: INodeNo, offset: u64, mut reply: ReplyDirectory) {
    let directory = answer!(reply, server.tmpfs.inode(inode.0));
    let listed = server.tmpfs.namespace.list(inode.0, offset, |cookie, line| {
        let full = match line {
            Listed::Directory { name, number } => {
                reply.add(INodeNo(number), cookie, FileType::Directory, OsStr::from_bytes(name))
            }
            Listed::Entry(entry) => {
                let number = INodeNo(entry.inode.number);
                reply.add(number, cookie, entry.inode.kind(), OsStr::from_bytes(&entry.name))
            }
        };
        if full { Flow::Enough } else { Flow::More }
    });
    answer!(reply, listed);
    directory.state().touch_access();
    reply.ok();
}

/// Lists entries with all attributes. The kernel then knows each inode as after a lookup.
pub fn entries(server: &Server, inode: INodeNo, offset: u64, mut reply: ReplyDirectoryPlus) {
    let directory = answer!(reply, server.tmpfs.inode(inode.0));
    let listed = server.tmpfs.namespace.list(inode.0, offset, |cookie, line| {
        let full = match line {
            Listed::Directory { name, number } => {
                // The kernel uses only the number of these two, and counts no lookup.
                let attributes =
                    fuser::FileAttr { ino: INodeNo(number), kind: FileType::Directory, ..nothing() };
                reply.add(
                    INodeNo(number),
                    cookie,
                    OsStr::from_bytes(name),
                    &Duration::ZERO,
                    &attributes,
                    GENERATION,
                )
            }
            Listed::Entry(entry) => {
                let attributes = server.tmpfs.table.remember(&entry.inode);
                let name = OsStr::from_bytes(&entry.name);
                let full = reply.add(attributes.ino, cookie, name, &FOREVER, &attributes, GENERATION);
                if full {
                    // The kernel did not get this entry.
                    server.forgotten(entry.inode.number, 1);
                }
                full
            }
        };
        if full { Flow::Enough } else { Flow::More }
    });
    answer!(reply, listed);
    directory.state().touch_access();
    reply.ok();
}
