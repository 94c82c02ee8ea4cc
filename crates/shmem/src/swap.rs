//! The swap space of one mount: the engine's [`Space`] with memory of its own, its devices, and the
//! working memory of each thread that uses it.

use crate::devices::{DeviceKind, Devices, Growth, SwapDevice};
use crate::error::CreateError;
use crate::frames::PAGE;
use crate::mapping::{Mapping, give_back};
use folioswap_devices::zstd::Decoder;
use folioswap_devices::{Page, PageMemory, Scratch};
use folioswap_policy::memory::Memory;
use folioswap_slots::{DeviceId, DeviceMask, LogicalCpu, SwapEntry};
use folioswap_space::space::Space;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Memory of the tables and the compressed store: mapped piece by piece, unmapped all together.
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

// SAFETY: fresh anonymous mappings, kept until `self` is dropped; `give_back` drops the contents of
// the given range alone.
unsafe impl PageMemory for SpaceMemory {
    fn map(&self, bytes: usize) -> Option<NonNull<u8>> {
        self.mapped(bytes, 2 << 20)
    }
    unsafe fn give_back(&self, start: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's contract.
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
    /// Pages to read into or to write from in one go. `None` if the system has no memory.
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

    /// The decoder and the pages of this context at once.
    pub(crate) fn split(&mut self) -> (&mut Decoder, &mut Option<Mapping>) {
        (&mut self.decoder, &mut self.pages)
    }
}

/// The swap space.
pub(crate) struct Swap {
    /// Borrows `memory`, and is dropped first.
    space: ManuallyDrop<Space<'static, SpaceMemory>>,
    memory: NonNull<SpaceMemory>,
    devices: Devices,
    contexts: Mutex<Vec<Box<Context>>>,
    contexts_made: AtomicU64,
    runs_made: AtomicU64,
}

// SAFETY: the pointer is to memory of our own that is only dropped with `self`; everything else may
// be sent.
unsafe impl Send for Swap {}
// SAFETY: as for `Send`.
unsafe impl Sync for Swap {}

impl Swap {
    pub(crate) fn new(devices: Vec<SwapDevice>) -> Result<Swap, CreateError> {
        let no_memory = || CreateError::System {
            doing: "making swap space",
            error: std::io::Error::from(std::io::ErrorKind::OutOfMemory),
        };
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
        let made = Devices::new(devices, space.shared_devices());
        let mut swap = Swap {
            space,
            memory,
            devices: Devices::none(),
            contexts: Mutex::new(Vec::new()),
            contexts_made: AtomicU64::new(0),
            runs_made: AtomicU64::new(0),
        };
        swap.devices = made?;
        Ok(swap)
    }

    /// The devices of the swap space.
    pub(crate) fn devices(&self) -> &Devices {
        &self.devices
    }

    pub(crate) fn space(&self) -> &Space<'static, SpaceMemory> {
        &self.space
    }

    /// The logical CPU whose clusters this thread uses.
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

    /// Bytes of working memory of all threads.
    pub(crate) fn working_memory(&self) -> u64 {
        let runs = self.runs_made.load(Relaxed) * (RUN * PAGE) as u64;
        self.contexts_made.load(Relaxed) * size_of::<Context>() as u64 + runs
    }

    /// Bytes in use on devices with clusters.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.space.file_space().used_slots() * PAGE as u64
    }

    /// Adds clusters of these devices.
    pub(crate) fn grow(&self, devices: DeviceMask) -> Growth {
        self.devices.grow(devices, self.space.file_space())
    }

    /// Whether the bytes of an entry are on this device. Pages of zeroes or of one repeated word
    /// are on none.
    pub(crate) fn is_on(&self, entry: SwapEntry, device: DeviceId) -> bool {
        match self.devices.kind(device) {
            Some(DeviceKind::Zram) => self.space.is_in_zram(entry),
            _ => self.space.is_on_shared(entry, device),
        }
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        // SAFETY: dropped once, and before what it borrows.
        unsafe { ManuallyDrop::drop(&mut self.space) };
        // SAFETY: leaked by `new`, and no borrow is left.
        drop(unsafe { Box::from_raw(self.memory.as_ptr()) });
    }
}
