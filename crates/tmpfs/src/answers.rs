//! Conversions between FUSE's types and the file system's.

use crate::tmpfs::NewContent;
use fuser::{FileType, INodeNo, ReplyXattr, TimeOrNow};
use rustix::io::Errno;
use std::time::{Duration, SystemTime};

/// Returns from the function with an error reply, where `$result` is an error.
macro_rules! answer {
    ($reply:expr, $result:expr) => {
        match $result {
            Ok(value) => value,
            Err(error) => return $reply.error($crate::answers::fuse(error)),
        }
    };
}
pub(crate) use answer;

/// Converts an error for fuser.
pub fn fuse(error: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(error.raw_os_error())
}

/// Returns the content of a new node of this type.
pub fn node(mode: u32, device: u32) -> Result<NewContent, Errno> {
    Ok(match mode & libc::S_IFMT {
        libc::S_IFREG | 0 => NewContent::File,
        libc::S_IFIFO => NewContent::Node(FileType::NamedPipe, 0),
        libc::S_IFSOCK => NewContent::Node(FileType::Socket, 0),
        libc::S_IFCHR => NewContent::Node(FileType::CharDevice, device),
        libc::S_IFBLK => NewContent::Node(FileType::BlockDevice, device),
        _ => return Err(Errno::INVAL),
    })
}

/// Converts a time. fuser decodes a time before 1970 with its fraction subtracted, but the protocol
/// has negative seconds and nanoseconds that always count forward.
pub fn time(time: TimeOrNow) -> SystemTime {
    match time {
        TimeOrNow::Now => SystemTime::now(),
        TimeOrNow::SpecificTime(time) => match SystemTime::UNIX_EPOCH.duration_since(time) {
            Ok(before) => SystemTime::UNIX_EPOCH
                .checked_sub(Duration::from_secs(before.as_secs()))
                .and_then(|time| time.checked_add(Duration::from_nanos(before.subsec_nanos().into())))
                .unwrap_or(time),
            Err(_) => time,
        },
    }
}

/// Replies with a value, or with its size where the caller asks for 0 bytes.
pub fn reply_xattr(value: &[u8], size: u32, reply: ReplyXattr) {
    match size {
        0 => reply.size(value.len() as u32),
        size if value.len() <= size as usize => reply.data(value),
        _ => reply.error(fuse(Errno::RANGE)),
    }
}

/// Returns attributes with inode number 0, which mean that there is no such name.
pub fn nothing() -> fuser::FileAttr {
    let time = SystemTime::UNIX_EPOCH;
    fuser::FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}
