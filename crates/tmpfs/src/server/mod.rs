//! The kernel's requests. Each is answered from the file system behind the server. Requests about
//! contents are in [`crate::contents`]; names, listings and attributes are in modules of their own.

mod attributes;
mod listing;
mod names;
mod writing;

use crate::{
    answers::{answer, fuse, node, nothing},
    contents,
    inode::{Content, Inode, Privileges},
    kernel_cache::KernelCache,
    tmpfs::{New, NewContent, Tmpfs},
};
use attributes::Changes;
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, Notifier, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::io::Errno;
use std::{
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt,
    path::Path,
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime},
};

/// Only the kernel that asks changes attributes, so its copies are valid until it changes them.
pub const FOREVER: Duration = Duration::from_secs(1 << 30);
/// Inode numbers are never reused, so one generation suffices.
const GENERATION: Generation = Generation(0);
/// The server keeps no state of an open file.
const NO_HANDLE: FileHandle = FileHandle(0);
/// The background requests (readahead) that the kernel may have under way.
const BACKGROUND_MAX: u16 = 32;

/// The path of read(2) and write(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Caching {
    /// Through the kernel's page cache, which `KernelCache` bounds.
    #[default]
    Kernel,
    /// Past the page cache, which then holds only pages that are mapped.
    Direct,
}

/// Answers the kernel's requests.
pub struct Server {
    tmpfs: Arc<Tmpfs>,
    caching: Caching,
    /// Sends notifications to the kernel. Set before the first request is served.
    kernel: Arc<OnceLock<Notifier>>,
    /// Whether the kernel sends open requests.
    opens: Opens,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Opens {
    Told,
    Silent,
}

impl Server {
    /// Makes a server of this file system. `kernel` must be set before the first request is served.
    pub fn new(tmpfs: Arc<Tmpfs>, caching: Caching, kernel: Arc<OnceLock<Notifier>>) -> Self {
        Server { tmpfs, caching, kernel, opens: Opens::Told }
    }

    fn cache(&self) -> &Arc<KernelCache> {
        &self.tmpfs.kernel_cache
    }

    fn open_flags(&self) -> FopenFlags {
        match self.caching {
            Caching::Kernel => FopenFlags::FOPEN_KEEP_CACHE,
            // Not FOPEN_PARALLEL_DIRECT_WRITES: mmap(2) would wait for such a write under the lock
            // that the write may need to read its own buffer.
            Caching::Direct => FopenFlags::FOPEN_DIRECT_IO,
        }
    }

    fn make(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        (mode, umask): (u32, u32),
        content: NewContent,
    ) -> Result<Arc<Inode>, Errno> {
        let parent = self.tmpfs.inode(parent.0)?;
        let bits = |mode: u32| (mode & 0o7777) as u16;
        let owner = (request.uid(), request.gid());
        let new = New { content, permissions: bits(mode), umask: bits(umask), owner };
        self.tmpfs.make(&parent, name.as_bytes(), new)
    }

    fn reply_entry(&self, inode: Result<Arc<Inode>, Errno>, reply: ReplyEntry) {
        let inode = answer!(reply, inode);
        reply.entry(&FOREVER, &self.tmpfs.table.remember(&inode), GENERATION);
    }

    fn forgotten(&self, inode: u64, lookups: u64) {
        self.tmpfs.table.forget(inode, lookups, || self.cache().gone(inode, 0));
    }

    /// Clears set-user-id bits and the like when a user without privilege changes a file. The
    /// kernel is told before the answer to fetch the mode again, because a process that then
    /// executes the file must not find the old mode. A notification without a range of pages takes
    /// no lock that the request may hold.
    fn drop_privileges(&self, inode: &Inode) {
        let privileges = inode.state().drop_privileges(inode.kind());
        if let (Privileges::Dropped, Some(kernel)) = (privileges, self.kernel.get()) {
            // An error means that the mount is gone.
            let _ = kernel.inval_inode(INodeNo(inode.number), -1, 0);
        }
    }
}

impl Filesystem for Server {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = [
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_CACHE_SYMLINKS,
            // Not FUSE_ASYNC_DIO: with it a write past the page cache is one of the background
            // requests, of which the kernel has a few. Those whose answer waits for pages to be
            // taken back would keep out the write-back of these pages. Nor would they hold the
            // inode's lock.
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
            InitFlags::FUSE_EXPLICIT_INVAL_DATA,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
            // The kernel decides by the lists that it reads from us, and leaves the umask to us,
            // because the umask does not count where a list is inherited.
            InitFlags::FUSE_POSIX_ACL,
            InitFlags::FUSE_DONT_MASK,
        ];
        for flag in wanted {
            // A kernel without the flag does more itself, or asks more often.
            let _ = config.add_capabilities(flag);
        }
        if self.caching == Caching::Kernel && config.capabilities().contains(InitFlags::FUSE_NO_OPEN_SUPPORT)
        {
            self.opens = Opens::Silent;
        }
        let _ = config.set_max_write(1 << 20);
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.tmpfs.namespace.lookup(parent.0, name.as_bytes()) {
            Err(Errno::NOENT) if self.tmpfs.namespace.is_live(parent.0) => {
                // The kernel may cache this answer too: number 0 means that the name does not
                // exist.
                reply.entry(&FOREVER, &nothing(), GENERATION);
            }
            found => self.reply_entry(found, reply),
        }
    }

    fn forget(&self, _request: &Request, inode: INodeNo, lookups: u64) {
        self.forgotten(inode.0, lookups);
    }

    fn getattr(&self, _request: &Request, inode: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        let inode = answer!(reply, self.tmpfs.inode(inode.0));
        reply.attr(&FOREVER, &inode.attributes());
    }

    fn setattr(
        &self,
        request: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let changes = Changes { mode, uid, gid, size, atime, mtime };
        attributes::set(self, request, inode, changes, reply);
    }

    fn readlink(&self, _request: &Request, inode: INodeNo, reply: ReplyData) {
        let inode = answer!(reply, self.tmpfs.inode(inode.0));
        match &inode.content {
            Content::Symlink(target) => {
                inode.state().touch_access();
                reply.data(target);
            }
            _ => reply.error(fuse(Errno::INVAL)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let made =
            node(mode, device).and_then(|content| self.make(request, parent, name, (mode, umask), content));
        self.reply_entry(made, reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        self.reply_entry(self.make(request, parent, name, (mode, umask), NewContent::Directory), reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = NewContent::Symlink(target.as_os_str().as_bytes().into());
        self.reply_entry(self.make(request, parent, name, (0o777, 0), target), reply);
    }

    fn link(&self, _request: &Request, inode: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.reply_entry(names::link(self, inode, parent, name), reply);
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let parent = answer!(reply, self.tmpfs.inode(parent.0));
        answer!(reply, self.tmpfs.namespace.unlink(&parent, name.as_bytes()));
        reply.ok();
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let parent = answer!(reply, self.tmpfs.inode(parent.0));
        answer!(reply, self.tmpfs.namespace.rmdir(&parent, name.as_bytes()));
        reply.ok();
    }

    fn rename(
        &self,
        request: &Request,
        from: INodeNo,
        from_name: &OsStr,
        to: INodeNo,
        to_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        names::rename(self, request, (from, from_name), (to, to_name), flags, reply);
    }

    fn open(&self, _request: &Request, _inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.opens {
            Opens::Silent => reply.error(fuser::Errno::ENOSYS),
            Opens::Told => reply.opened(NO_HANDLE, self.open_flags()),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let inode = answer!(reply, self.make(request, parent, name, (mode, umask), NewContent::File));
        let attributes = self.tmpfs.table.remember(&inode);
        reply.created(&FOREVER, &attributes, GENERATION, NO_HANDLE, self.open_flags());
    }

    fn read(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let inode = answer!(reply, self.tmpfs.inode(inode.0));
        let object = answer!(reply, inode.object().ok_or(Errno::INVAL));
        if flags.0 & libc::O_NOATIME == 0 {
            inode.state().touch_access();
        }
        // A read past the page cache names its lock owner; a read by the page cache has none.
        let (number, bytes) = (inode.number, offset..offset.saturating_add(size.into()));
        match owner {
            None => self.cache().read_pages(number, contents::pages(offset, size.into()), || {
                contents::read(object, offset, size as usize, reply);
            }),
            Some(_) => {
                let inode = Arc::clone(&inode);
                self.cache().read_past(number, bytes, move || {
                    let object = answer!(reply, inode.object().ok_or(Errno::INVAL));
                    contents::read(object, offset, size as usize, reply);
                });
            }
        }
    }

    fn write(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        write: WriteFlags,
        _flags: OpenFlags,
        owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        writing::write(self, inode, (offset, data), write, owner, reply);
    }

    fn flush(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // The server delays nothing, so the kernel need not send this again.
        reply.error(fuser::Errno::ENOSYS);
    }

    fn fsync(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _data: bool,
        reply: ReplyEmpty,
    ) {
        // The kernel writes its dirty pages to us before this request, and goes on doing so.
        reply.error(fuser::Errno::ENOSYS);
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _data: bool,
        reply: ReplyEmpty,
    ) {
        reply.error(fuser::Errno::ENOSYS);
    }

    fn fallocate(
        &self,
        request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let inode = answer!(reply, self.tmpfs.inode(inode.0));
        let object = answer!(reply, inode.object().ok_or(Errno::OPNOTSUPP));
        answer!(reply, contents::fallocate(object, offset, length, mode));
        if request.uid() != 0 {
            self.drop_privileges(&inode);
        }
        inode.state().touch_contents();
        reply.ok();
    }

    fn lseek(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let inode = answer!(reply, self.tmpfs.inode(inode.0));
        // A page that was only stored to through a mapping looks like a hole, until the kernel
        // writes it back.
        self.cache().after_flush(inode.number, move || {
            let object = answer!(reply, inode.object().ok_or(Errno::INVAL));
            let found = answer!(reply, contents::seek(object, offset, whence));
            reply.offset(found);
        });
    }

    fn copy_file_range(
        &self,
        request: &Request,
        from: INodeNo,
        _from_handle: FileHandle,
        from_offset: u64,
        to: INodeNo,
        _to_handle: FileHandle,
        to_offset: u64,
        length: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let from = answer!(reply, self.tmpfs.inode(from.0));
        let to = answer!(reply, self.tmpfs.inode(to.0));
        let (Some(source), Some(target)) = (from.object(), to.object()) else {
            return reply.error(fuse(Errno::INVAL));
        };
        // The answer has 32 bits. The caller goes on behind the bytes that were copied.
        let length = length.min(1 << 30);
        let copied = answer!(reply, contents::copy((source, from_offset), (target, to_offset), length));
        from.state().touch_access();
        // The request does not say whether the caller may keep them; write(2) lets root.
        if request.uid() != 0 {
            self.drop_privileges(&to);
        }
        to.state().touch_contents();
        reply.written(copied as u32);
    }

    fn readdir(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        listing::names(self, inode, offset, reply);
    }

    fn readdirplus(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        listing::entries(self, inode, offset, reply);
    }

    fn statfs(&self, _request: &Request, _inode: INodeNo, reply: ReplyStatfs) {
        attributes::of_file_system(&self.tmpfs, reply);
    }

    fn setxattr(
        &self,
        request: &Request,
        inode: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        attributes::set_extended(self, request, inode, (name, value), flags, reply);
    }

    fn getxattr(&self, _request: &Request, inode: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        attributes::extended(self, inode, name, size, reply);
    }

    fn listxattr(&self, request: &Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
        attributes::list_extended(self, request, inode, size, reply);
    }

    fn removexattr(&self, request: &Request, inode: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        attributes::remove_extended(self, request, inode, name, reply);
    }
}
