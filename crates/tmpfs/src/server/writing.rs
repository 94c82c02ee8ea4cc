//! write(2), and the write-back of pages that were stored to through a mapping.

use super::{Caching, Server};
use crate::{
    answers::{answer, fuse},
    contents::errno,
    kernel_cache::past::Answer,
};
use folioswap_shmem::ShmemObject;
use fuser::{INodeNo, LockOwner, ReplyWrite, WriteFlags};
use rustix::io::Errno;

/// Where the bytes of a write request come from.
enum Source {
    /// write(2) through the page cache, which holds the bytes too.
    Through,
    /// write(2) past the page cache.
    Past,
    /// Pages of the page cache that were stored to.
    WriteBack,
}

/// Does a write request.
pub fn write(
    server: &Server,
    inode: INodeNo,
    (offset, data): (u64, &[u8]),
    write: WriteFlags,
    owner: Option<LockOwner>,
    reply: ReplyWrite,
) {
    let inode = answer!(reply, server.tmpfs.inode(inode.0));
    let object = answer!(reply, inode.object().ok_or(Errno::INVAL));
    let source = if write.contains(WriteFlags::FUSE_WRITE_CACHE) {
        Source::WriteBack
    } else if owner.is_some() || server.caching == Caching::Direct {
        // As with read(2). The flags of the open file do not tell: they may be changed, and the
        // page cache also serves those with O_DIRECT, while it may hold the lock of a page.
        Source::Past
    } else {
        Source::Through
    };
    let bytes = offset..offset.saturating_add(data.len() as u64);
    let carry_out = || object.write(offset, data).map_err(errno);
    let result = match source {
        // Pages from the page cache were handed out before; a wait for space with them would wait
        // for itself.
        Source::WriteBack => server
            .cache()
            .write_back(inode.number, offset, data, |offset, data| write_all(object, offset, data))
            .map(|()| (data.len(), Answer::Now)),
        Source::Past => server.cache().write_past(inode.number, bytes, carry_out),
        Source::Through => {
            server.cache().write_through(inode.number, bytes, carry_out).map(|written| (written, Answer::Now))
        }
    };
    let (written, answer) = match result {
        Ok(written) => written,
        Err(error) => return reply.error(fuse(error)),
    };
    if write.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
        server.drop_privileges(&inode);
    }
    inode.state().touch_contents();
    match answer {
        Answer::Now => reply.written(written as u32),
        Answer::AfterTakingBack(id) => {
            server.cache().after_taking_back(id, move || reply.written(written as u32));
        }
    }
}

/// Writes all of the bytes. When a write-back of mapped pages is done, the kernel drops them,
/// however many bytes we report: msync and fsync see only an error.
fn write_all(object: &ShmemObject, offset: u64, data: &[u8]) -> Result<(), Errno> {
    let mut written = 0;
    while written < data.len() {
        written += object.write(offset + written as u64, &data[written..]).map_err(errno)?;
    }
    Ok(())
}
