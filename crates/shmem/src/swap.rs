//! The swap space of one mount: the engine's [`Space`] with memory of its own, a file behind it, and what each thread needs to use it.

use crate::error::CreateError;
use crate::frames::PAGE;
use crate::mapping::{Mapping, give_back};
use crate::options::SwapFile;
use folioswap_core::page_table::Memory;
use folioswap_core::space::Space;
use folioswap_devices::create::{create_swap_file, default_swap_max};
use folioswap_devices::zstd::Decoder;
use folioswap_devices::{Page, PageMemory, Scratch};
use folioswap_group::devices::{DeviceDescription, DeviceIo, DeviceKind};
use folioswap_slots::{DeviceId, DeviceMask, LogicalCpu};
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Where tables and the compressed store are: mapped piecewise, unmapped all together.
#[derive(Debug, Default)]
pub(crate) struct SpaceMemory(Mutex<Vec<Mapping>>);

impl SpaceMemory {
    fn mapped(&self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        let mapping = Mapping::new(bytes, align)?.without_huge_pages();
        let start = mapping.start();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(mapping);
        Some(start)
    }
}

impl Memory for SpaceMemory {
    fn take(&self, bytes: usize) -> Option<NonNull<u8>> {
        self.mapped(bytes, PAGE)
    }
}

// SAFETY: fresh anonymous mappings, kept until `self` is dropped; `give_back` drops the contents of the given range alone.
unsafe impl PageMemory for SpaceMemory {
    fn map(&self, bytes: usize) -> Option<NonNull<u8>> {
        self.mapped(bytes, 2 << 20)
    }
    unsafe fn give_back(&self, start: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's.
        unsafe { give_back(start, bytes) }
    }
}

/// Working memory of one thread that swaps.
pub(crate) struct Context {
    pub(crate) scratch: Scratch,
    pub(crate) decoder: Decoder,
    pages: Option<Mapping>,
}

#[cfg(test)]
std::thread_local! {
    /// The system has no memory for [`Context::pages`], for tests of what happens then.
    pub(crate) static NO_MEMORY_FOR_RUNS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Pages of [`Context::pages`].
pub(crate) const RUN: usize = 64;

impl Context {
    /// Pages to read into or to write from in one go. `None`: the system has no memory.
    pub(crate) fn pages(pages: &mut Option<Mapping>, count: usize) -> Option<&mut [Page]> {
        #[cfg(test)]
        if NO_MEMORY_FOR_RUNS.get() {
            return None;
        }
        if pages.is_none() {
            *pages = Some(Mapping::new(RUN * PAGE, PAGE)?);
        }
        let start = pages.as_ref()?.start().cast::<Page>();
        // SAFETY: RUN pages of our own, borrowed with the context; any bytes are a page.
        Some(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), count.min(RUN)) })
    }

    /// The decoder and pages of this context at once.
    pub(crate) fn split(&mut self) -> (&mut Decoder, &mut Option<Mapping>) {
        (&mut self.decoder, &mut self.pages)
    }
}

/// The file behind the compressed store.
struct Behind {
    file: File,
    clusters: u32,
    granted: Mutex<u32>,
}

/// The swap space.
pub(crate) struct Swap {
    /// Lives in `memory`, and goes first.
    space: ManuallyDrop<Space<'static, SpaceMemory>>,
    memory: NonNull<SpaceMemory>,
    behind: Option<Behind>,
    contexts: Mutex<Vec<Box<Context>>>,
    contexts_made: AtomicU64,
    runs_made: AtomicU64,
}

// SAFETY: the pointer is to memory of our own that is only dropped with `self`; everything else may be sent.
unsafe impl Send for Swap {}
// SAFETY: as for `Send`.
unsafe impl Sync for Swap {}

/// The number of the file among the devices.
const FILE: DeviceId = DeviceId::new(1).unwrap();
/// Clusters of the file that are added at a time: 32 MiB.
const GRANT: u32 = 16;
const CLUSTER_BYTES: u64 = 2 << 20;

impl Swap {
    pub(crate) fn new(file: Option<&SwapFile>) -> Result<Swap, CreateError> {
        let no_memory = || CreateError::System {
            doing: "making swap space",
            error: std::io::Error::from(std::io::ErrorKind::OutOfMemory),
        };
        let behind = file.map(behind).transpose()?;
        let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32).min(64);
        let memory = NonNull::from(Box::leak(Box::<SpaceMemory>::default()));
        // SAFETY: leaked just now; dropped by `Swap::drop`, after the space.
        let space = match Space::create_for(unsafe { memory.as_ref() }, cpus) {
            Ok(space) => ManuallyDrop::new(space),
            Err(_) => {
                // SAFETY: leaked just now, and the space that borrowed it was not made.
                drop(unsafe { Box::from_raw(memory.as_ptr()) });
                return Err(no_memory());
            }
        };
        if let Some(behind) = &behind {
            let description = DeviceDescription {
                kind: DeviceKind::File,
                priority: 0,
                io: DeviceIo::Asynchronous,
                first_cluster: 0,
                clusters: behind.clusters,
            };
            space.shared_devices().set(FILE, description, behind.file.as_raw_fd());
        }
        Ok(Swap {
            space,
            memory,
            behind,
            contexts: Mutex::new(Vec::new()),
            contexts_made: AtomicU64::new(0),
            runs_made: AtomicU64::new(0),
        })
    }

    pub(crate) fn space(&self) -> &Space<'static, SpaceMemory> {
        &self.space
    }

    /// The logical CPU whose clusters are used.
    pub(crate) fn cpu() -> LogicalCpu {
        LogicalCpu(rustix::thread::sched_getcpu() as u32)
    }

    /// Runs `work` with working memory of this thread's own.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Context) -> R) -> R {
        let idle = || self.contexts.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle().pop();
        let mut context = kept.unwrap_or_else(|| {
            self.contexts_made.fetch_add(1, Relaxed);
            Box::new(Context { scratch: Scratch::new(), decoder: Decoder::new(), pages: None })
        });
        let had_pages = context.pages.is_some();
        let result = work(&mut context);
        self.runs_made.fetch_add(u64::from(context.pages.is_some() && !had_pages), Relaxed);
        idle().push(context);
        result
    }

    /// Bytes that threads work with.
    pub(crate) fn working_memory(&self) -> u64 {
        let runs = self.runs_made.load(Relaxed) * (RUN * PAGE) as u64;
        self.contexts_made.load(Relaxed) * size_of::<Context>() as u64 + runs
    }

    /// Is there a file behind the compressed store?
    pub(crate) fn has_file(&self) -> bool {
        self.behind.is_some()
    }

    /// The devices behind the compressed store.
    pub(crate) fn files() -> DeviceMask {
        DeviceMask::only(FILE)
    }

    /// The file itself, for tests that damage it.
    #[cfg(test)]
    pub(crate) fn file(&self) -> Option<&File> {
        self.behind.as_ref().map(|behind| &behind.file)
    }

    /// Bytes in use on the file.
    pub(crate) fn file_bytes(&self) -> u64 {
        if self.has_file() { self.space.file_space().used_slots() * PAGE as u64 } else { 0 }
    }

    /// More clusters of the file; false: it is as large as it may be.
    pub(crate) fn grow_file(&self) -> bool {
        let Some(behind) = &self.behind else { return false };
        let mut granted = behind.granted.lock().unwrap_or_else(PoisonError::into_inner);
        let next = *granted..(*granted + GRANT).min(behind.clusters);
        if next.is_empty() {
            return false;
        }
        let added = self.space.file_space().add(next.map(|number| (number, FILE)));
        *granted += added as u32;
        added > 0
    }
}

fn behind(file: &SwapFile) -> Result<Behind, CreateError> {
    let descriptor = create_swap_file(&file.directory)?;
    let max = match file.max {
        Some(max) => max,
        None => default_swap_max(&file.directory)?,
    };
    let most = folioswap_core::file_space::CLUSTERS_MAX as u64;
    let clusters = max.div_ceil(CLUSTER_BYTES).min(most) as u32;
    Ok(Behind { file: File::from(descriptor), clusters, granted: Mutex::new(0) })
}

impl Drop for Swap {
    fn drop(&mut self) {
        // SAFETY: dropped once, and before what it borrows.
        unsafe { ManuallyDrop::drop(&mut self.space) };
        // SAFETY: leaked by `new`, and nobody borrows it any more.
        drop(unsafe { Box::from_raw(self.memory.as_ptr()) });
    }
}
