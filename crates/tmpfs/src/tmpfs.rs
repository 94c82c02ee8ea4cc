//! The file system behind the requests: inodes, directories and their limits.

use crate::{
    acl::{Acl, Extent, Which},
    control::Control,
    inode::{Content, Inode, PAGE_SIZE},
    kernel_cache::KernelCache,
    limits::{Charge, DIRECTORY_MEMORY, InodeReservation, Inodes, Memory, XATTR_MEMORY, entry_memory},
    mount::{MEMORY_MIN, shares_with},
    namespace::Namespace,
    table::InodeTable,
};
use folioswap_shmem::{HugePolicy, LimitError, ShmemObject, ShmemSpace};
use fuser::FileType;
use rustix::io::Errno;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// The number of the root directory.
pub const ROOT: u64 = 1;

/// The options of a file system.
#[derive(Clone, Copy, Debug)]
pub struct TmpfsOptions {
    /// The most inodes.
    pub inodes_max: u64,
    /// The limit of daemon and page cache with which the mount began, in bytes.
    pub memory: u64,
    /// The threads that serve requests.
    pub threads: usize,
    /// The most contents with which the mount began, in bytes. (The shmem space enforces it.)
    pub size: u64,
    /// The folios in which contents come.
    pub huge: HugePolicy,
    /// The permissions of the root directory.
    pub root_permissions: u16,
    /// The owner and group of the root directory.
    pub root_owner: (u32, u32),
}

/// A file system.
pub struct Tmpfs {
    /// The options that it was made with.
    pub options: TmpfsOptions,
    /// The space of the contents.
    pub space: Arc<ShmemSpace>,
    /// The inodes that the kernel knows.
    pub table: InodeTable,
    /// The directories.
    pub namespace: Namespace,
    /// The number of inodes.
    pub inodes: Arc<Inodes>,
    /// The limit that their memory counts towards.
    pub memory: Memory,
    /// The bound on the kernel's page cache.
    pub kernel_cache: Arc<KernelCache>,
    /// The control attributes of the root.
    pub control: Control,
    /// The limit of daemon and page cache now, in bytes.
    limit: AtomicU64,
    next_number: AtomicU64,
}

/// Reserves an inode and its first name.
pub struct Reservation {
    inode: InodeReservation,
    name: Charge,
}

/// The attributes of a new inode.
pub struct New {
    /// The type and contents.
    pub content: NewContent,
    /// The requested permissions.
    pub permissions: u16,
    /// The permissions that are removed where the directory has no default list.
    pub umask: u16,
    /// The owner and group of the new inode.
    pub owner: (u32, u32),
}

/// The content of a new inode.
pub enum NewContent {
    /// An empty regular file.
    File,
    /// An empty directory.
    Directory,
    /// A symbolic link to this target.
    Symlink(Box<[u8]>),
    /// A fifo, a socket or a device, with its device number.
    Node(FileType, u32),
}

impl Tmpfs {
    /// Makes an empty file system.
    pub fn new(space: Arc<ShmemSpace>, kernel_cache: Arc<KernelCache>, options: TmpfsOptions) -> Arc<Self> {
        let memory = Memory::within(&space);
        let inodes = Inodes::new(options.inodes_max.max(1), memory.clone());
        let tmpfs = Tmpfs {
            space,
            table: InodeTable::new(),
            namespace: Namespace::new(ROOT),
            kernel_cache,
            control: Control::default(),
            limit: AtomicU64::new(options.memory),
            next_number: AtomicU64::new(ROOT + 1),
            inodes: Arc::clone(&inodes),
            memory,
            options,
        };
        // There is always room for the first inode.
        if let Some(reservation) = inodes.reserve() {
            let root = Inode::new(
                ROOT,
                Content::Directory,
                options.root_permissions,
                options.root_owner,
                0,
                reservation,
            );
            // The kernel knows the root as long as it is mounted, and never forgets it.
            tmpfs.table.remember(&Arc::new(root));
        }
        Arc::new(tmpfs)
    }

    /// Returns the inode of this number.
    ///
    /// # Errors
    /// `ESTALE`: the kernel does not know it.
    pub fn inode(&self, number: u64) -> Result<Arc<Inode>, Errno> {
        self.table.get(number).ok_or(Errno::STALE)
    }

    /// Makes an inode and gives it a name. In a directory with the set-group-id bit the inode gets
    /// the directory's group, and a directory also gets the bit. In a directory with a default
    /// access control list the inode inherits its lists, which may also restrict its mode.
    ///
    /// # Errors
    /// `ENOSPC`: no inode is left, or no memory for it; those of [`Namespace::insert`].
    pub fn make(&self, parent: &Inode, name: &[u8], new: New) -> Result<Arc<Inode>, Errno> {
        let mut reserved = self.reserve(name)?;
        match &new.content {
            NewContent::Directory => reserved.inode.charge.grow(DIRECTORY_MEMORY)?,
            NewContent::Symlink(target) => reserved.inode.charge.grow(target.len() as u64)?,
            NewContent::File | NewContent::Node(..) => {}
        }
        self.make_reserved(reserved, parent, name, new)
    }

    /// Reserves an inode of this name.
    ///
    /// # Errors
    /// `ENOSPC`: no inode is left, or no memory for it.
    pub fn reserve(&self, name: &[u8]) -> Result<Reservation, Errno> {
        let inode = self.inodes.reserve().ok_or(Errno::NOSPC)?;
        Ok(Reservation { inode, name: self.memory.charge(entry_memory(name))? })
    }

    /// Does [`Self::make`] with an inode that was reserved before.
    ///
    /// # Errors
    /// Those of [`Namespace::insert`].
    pub fn make_reserved(
        &self,
        reserved: Reservation,
        parent: &Inode,
        name: &[u8],
        new: New,
    ) -> Result<Arc<Inode>, Errno> {
        let (mut permissions, (uid, mut gid)) = (new.permissions, new.owner);
        let (is_directory, is_symlink) =
            (matches!(new.content, NewContent::Directory), matches!(new.content, NewContent::Symlink(_)));
        let default = {
            let state = parent.state();
            if state.permissions & 0o2000 != 0 {
                gid = state.gid;
                permissions |= if is_directory { 0o2000 } else { 0 };
            }
            state.xattrs.acl(Which::Default).filter(|_| !is_symlink)
        };
        let access = default.as_ref().map(|default| default.inherited(permissions));
        permissions = access.as_ref().map_or(permissions & !new.umask, |&(_, permissions)| permissions);
        let number = self.next_number.fetch_add(1, Relaxed);
        let (content, device) = match new.content {
            NewContent::File => (Content::File(ShmemObject::new(&self.space, self.options.huge)), 0),
            NewContent::Directory => (Content::Directory, 0),
            NewContent::Symlink(target) => (Content::Symlink(target), 0),
            NewContent::Node(kind, device) => (Content::Node(kind), device),
        };
        let inode = Arc::new(Inode::new(number, content, permissions, (uid, gid), device, reserved.inode));
        if let Some((access, _)) = access.filter(|(access, _)| access.permissions().1 == Extent::BeyondMode) {
            self.give_acl(&inode, Which::Access, &access);
        }
        if let Some(default) = default.filter(|_| is_directory) {
            self.give_acl(&inode, Which::Default, &default);
        }
        self.namespace.insert(parent, name, &inode, reserved.name)?;
        Ok(inode)
    }

    fn give_acl(&self, inode: &Inode, which: Which, acl: &Acl) {
        let value = acl.value();
        // The list is not larger than the directory's own, which had room.
        let charge = self.memory.charge_anyway(XATTR_MEMORY + (which.name().len() + value.len()) as u64);
        inode.state().xattrs.set_acl(which, value, charge);
    }

    /// Returns the limit of daemon and page cache, in bytes.
    pub fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    /// Sets another limit of daemon and page cache. Contents and pages of the kernel's page cache
    /// leave from now on.
    ///
    /// # Errors
    /// `EINVAL`: the limit is too small for a mount with so many threads; `ERANGE`: it is above the
    /// highest that the mount may have.
    pub fn set_limit(&self, bytes: u64) -> Result<(), Errno> {
        let shares = shares_with(bytes, self.options.threads);
        if bytes < MEMORY_MIN {
            return Err(Errno::INVAL);
        }
        self.space.set_limit(shares.contents).map_err(|error| match error {
            LimitError::TooSmall { .. } => Errno::INVAL,
            LimitError::TooLarge { .. } => Errno::RANGE,
        })?;
        self.kernel_cache.set_bound(shares.page_cache);
        self.limit.store(bytes, Relaxed);
        Ok(())
    }

    /// Returns the most contents, in bytes.
    pub fn size(&self) -> u64 {
        self.space.statistics().content_max.unwrap_or(self.options.size)
    }

    /// Sets the most contents, in bytes.
    ///
    /// # Errors
    /// `EINVAL`: there is more content, or not one page has room.
    pub fn set_size(&self, bytes: u64) -> Result<(), Errno> {
        if bytes < PAGE_SIZE {
            return Err(Errno::INVAL);
        }
        self.space.set_size(bytes).map_err(|_| Errno::INVAL)
    }

    /// Returns figures for people and programs, a name and a number on each line: sizes in bytes,
    /// counters since the mount, with the kernel's names where it has them.
    pub fn figures(&self) -> String {
        let (space, cache) = (self.space.statistics(), self.kernel_cache.statistics());
        let rows = [
            ("memory", self.limit()),
            ("memory_limit", space.limit),
            ("memory_used", space.used),
            ("folios", space.folios),
            ("idle", space.idle),
            ("metadata", space.metadata),
            ("content", space.content),
            ("content_max", self.size()),
            ("store", space.store),
            ("stored", space.stored),
            ("on_file", space.on_file),
            ("pswpin", space.counts.pswpin),
            ("pswpout", space.counts.pswpout),
            ("pgmajfault", space.counts.pgmajfault),
            ("inodes", self.inodes.used()),
            ("inodes_max", self.inodes.max()),
            ("inodes_known", self.table.len() as u64),
            ("page_cache_max", cache.pages * PAGE_SIZE),
            ("page_cache_taken_back", cache.taken_back),
            ("page_cache_waits", cache.waits),
        ];
        rows.map(|(name, value)| format!("{name} {value}\n")).concat()
    }
}
