//! The setting of tests: memory of the program, a userfaultfd, and an engine with pages in its
//! store.

use crate::engine::Engine;
use crate::engine::ring_turn::RingTurn;
use crate::fault::queue::{Attempt, Fault};
use crate::fault::unmapped::Moment;
use crate::kernel::uffd::{Access, Userfault, Watch};
use crate::staging::candidates::Candidates;
use crate::staging::ring::RECYCLED_BERTHS;
use crate::units::{BLOCK, BlockAddr, PAGE, PIECE, PIECE_PAGES, PageAddr, PageInBlock, Pages};
use core::sync::atomic::Ordering::{Relaxed, Release};
use folioswap_devices::{IncompressiblePolicy, Page, Scratch};
use folioswap_group::decisions::{CallFaults, Decisions, DecisionsWriter, Forks};
use folioswap_group::devices::{DeviceContents, DeviceDescription, DeviceIo, DeviceKind};
use folioswap_group::folio_orders::FolioOrders;
use folioswap_group::segment::Segment;
use folioswap_policy::page::{Heat, PageWord};
use folioswap_slots::{DeviceId, FolioId, Order, SwapEntry};
use folioswap_space::space::Space;
use rustix::fs::{Mode, OFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use std::alloc::{Layout, alloc_zeroed};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};

impl Candidates {
    /// A full piece that is to be written.
    pub(crate) const ALL_DIRTY: Self = Candidates { written: Pages::MAX, clean: 0 };
    /// A full piece of clean pages, whose stored copies equal them.
    pub(crate) const ALL_CLEAN: Self = Candidates { written: 0, clean: Pages::MAX };
}

fn map_with(address: usize, bytes: usize, flags: MapFlags) -> usize {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, at an address of the kernel's choice or where nothing is mapped.
    unsafe { mmap_anonymous(address as *mut _, bytes, access, MapFlags::PRIVATE | flags).unwrap() as usize }
}

/// Makes a new mapping.
pub(crate) fn map(bytes: usize) -> usize {
    map_with(0, bytes, MapFlags::empty())
}

/// Makes a new mapping in a hole.
pub(crate) fn map_at(hole: usize, bytes: usize) -> usize {
    map_with(hole, bytes, MapFlags::FIXED_NOREPLACE)
}

/// The right to the ring of an engine that has neither an evictor nor a handler.
pub(crate) fn ring_turn(engine: &Engine) -> RingTurn<'_> {
    // SAFETY: the calling test is the only thread that uses the ring.
    unsafe { RingTurn::new(engine) }
}

/// Called once for each test that cannot be made here.
pub(crate) use folioswap_test_support::skipping::note as skip;

/// A fault that was just read, of thread `thread`.
pub(crate) fn fault(address: usize, access: Access, thread: u32) -> Fault {
    Fault {
        page: PageAddr::containing(address),
        access,
        thread,
        attempt: Attempt::First,
        since_ns: 0,
        read_at: Moment::FIRST,
    }
}

/// A huge page in use, full of fives, in a mapping of its own. `None`, and counted as skipped, when
/// the system has none now.
pub(crate) fn huge_page(engine: &Engine) -> Option<usize> {
    let address = map(2 * BLOCK).next_multiple_of(BLOCK);
    // SAFETY: mapped just now.
    unsafe {
        madvise(address as *mut _, BLOCK, Advice::LinuxHugepage).unwrap();
        (address as *mut u8).write_bytes(5, BLOCK);
    }
    let is_huge = crate::kernel::pagemap::is_huge(engine.descriptors.pagemap.load(Relaxed), address);
    if !is_huge {
        skip_without_huge_page();
    }
    is_huge.then_some(address)
}

/// The same because the system has no huge page.
pub(crate) fn skip_without_huge_page() {
    skip("the system has no huge page now");
}

/// Whether the kernel frees the page table of 2 MiB that are given up as a whole, as Linux does
/// since 6.14. False is counted as skipped.
pub(crate) fn frees_page_tables() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("the kernel's release");
    let mut numbers = release.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < (6, 14) {
        skip("Linux before 6.14 keeps the page table of memory that is given up");
    }
    version >= (6, 14)
}

/// `None` where userfaultfd is not allowed, as `folioswap doctor` tells; then the test is skipped.
pub(crate) fn userfault() -> Option<Userfault> {
    Userfault::open(Forks::Reported, CallFaults::Served, None)
        .inspect_err(|why| skip(&std::format!("userfaultfd: {why}")))
        .ok()
}

/// An engine that is the first member of a group of its own, which no other process has.
pub(crate) fn engine() -> &'static Engine {
    in_a_group(Engine::create(b"test", b"").expect("an engine"))
}

/// The same with this many slots, the header's included.
pub(crate) fn engine_with_slots(slots: u64) -> &'static Engine {
    let engine = Engine::create_with(b"test", b"", |arena| Space::create_of(arena, 1, slots));
    in_a_group(engine.expect("an engine"))
}

fn in_a_group(engine: &'static Engine) -> &'static Engine {
    // SAFETY: of a size that is not zero.
    let zeroed = |bytes| unsafe { alloc_zeroed(Layout::from_size_align(bytes, PAGE).expect("a layout")) };
    // Both are zeroed page-aligned memory, for ever.
    engine.membership.decisions.store(zeroed(Decisions::BYTES).cast(), Release);
    engine.membership.segment.store(zeroed(Segment::BYTES).cast(), Release);
    decide(engine).set_folio_orders(FolioOrders::ALL);
    engine
}

/// The right to decide for the group of such an engine.
pub(crate) fn decide(engine: &Engine) -> DecisionsWriter<'static> {
    // SAFETY: `in_a_group` allocated the decisions in memory of this process.
    unsafe { DecisionsWriter::new(engine.decisions()) }
}

/// An engine with a file as its first device, whose pages are filled with their number plus one.
pub(crate) fn engine_with_file(slots: u64) -> (&'static Engine, OwnedFd) {
    let engine = engine();
    (engine, attach_file(engine, slots))
}

/// Makes such a file the first device of an engine.
pub(crate) fn attach_file(engine: &Engine, slots: u64) -> OwnedFd {
    let file = rustix::fs::memfd_create("reads", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    for number in 0..slots {
        rustix::io::pwrite(&file, &[(number as u8).wrapping_add(1); PAGE], number * PAGE as u64).unwrap();
    }
    let (kind, io) = (DeviceKind::File, DeviceIo::Asynchronous);
    let description = DeviceDescription {
        kind,
        priority: 0,
        io,
        first_cluster: 0,
        clusters: 4,
        contents: DeviceContents::Plain,
    };
    engine.space.shared_devices().set(DeviceId::new(0).unwrap(), description, file.as_raw_fd());
    file
}

/// Leaves a page of the program in the compressed store, as the evictor and the write-back do.
pub(crate) fn store_page(engine: &Engine, address: usize, page: &Page) -> SwapEntry {
    engine.space.reserve_frames().expect("memory");
    let entry = engine.space.allocate(Order::ZERO, FolioId(0)).expect("a slot");
    engine.space.write(&mut Scratch::new(), entry, page, IncompressiblePolicy::Keep).expect("room");
    engine.space.leave_cache(entry, 1, engine.workingset.shadow());
    let block = engine.table.block_or_insert(BlockAddr::containing(address), engine.arena).expect("memory");
    let word = PageWord::PRESENT.isolate(entry).and_then(PageWord::moved).and_then(PageWord::written);
    block.set(PageInBlock::new(address % BLOCK / PAGE), word.expect("transitions"));
    entry
}

/// An engine with a group, a userfaultfd and a pagemap of its own. `None`, and counted as skipped
/// with the reason, where userfaultfd is not allowed.
pub(crate) fn watching_engine() -> Option<&'static Engine> {
    let userfault = userfault()?;
    let engine = engine();
    engine.descriptors.userfault.store(userfault.0, Relaxed);
    let pagemap = rustix::fs::open("/proc/self/pagemap", OFlags::RDONLY, Mode::empty()).expect("a pagemap");
    engine.descriptors.pagemap.store(pagemap.into_raw_fd(), Relaxed);
    Some(engine)
}

/// The same with a staging ring.
pub(crate) fn moving_engine() -> Option<&'static Engine> {
    moving_engine_of(4 * RECYCLED_BERTHS)
}

/// The same with this many berths in it (a multiple of 32).
pub(crate) fn moving_engine_of(places: u64) -> Option<&'static Engine> {
    let engine = watching_engine()?;
    let bytes = places as usize * PIECE;
    let base = engine.arena.move_target(bytes).unwrap();
    engine.userfault().register(base.as_ptr() as usize, bytes, Watch::MoveTarget).unwrap();
    // SAFETY: no other thread uses the engine.
    unsafe { (&mut *engine.staging.get()).install(base, places) };
    Some(engine)
}

/// An engine with a staging ring and a pool of huge pages, in a group with this limit.
pub(crate) fn engine_with_pool(limit: u64) -> Option<&'static Engine> {
    let engine = moving_engine()?;
    decide(engine).set_limit_bytes(limit);
    engine.make_pool(limit);
    Some(engine)
}

/// The word at an address of the test's.
pub(crate) fn word_at(address: usize) -> u64 {
    // SAFETY: mapped by the test.
    unsafe { (address as *const u64).read_volatile() }
}

/// Fills 64 KiB of the test's memory: each page begins with another word.
pub(crate) fn fill(start: usize) {
    for page in 0..PIECE_PAGES {
        // SAFETY: mapped by the test.
        unsafe { ((start + page * PAGE) as *mut u64).write_volatile(7 + page as u64) };
    }
}

/// A piece of the program whose pages are all clean, and their entries.
pub(crate) fn clean_piece(engine: &Engine) -> (usize, [SwapEntry; PIECE_PAGES]) {
    let start = map(2 * PIECE).next_multiple_of(PIECE);
    engine.register_pieces(start, start + PIECE);
    let entries = core::array::from_fn(|page| {
        let (address, contents) = (start + page * PAGE, [page as u8 + 1; PAGE]);
        let entry = store_page(engine, address, &contents);
        // SAFETY: mapped by the test; the page is missing.
        unsafe { engine.userfault().copy_protected(address, contents.as_ptr(), PAGE) }.unwrap();
        let block = engine.table.block(BlockAddr::containing(address)).unwrap();
        let stored = block.word(PageAddr::containing(address).index());
        block.set(
            PageAddr::containing(address).index(),
            stored.claim().unwrap().returned_clean(Heat::Cold).unwrap(),
        );
        entry
    });
    engine.counts.clean_pages.store(PIECE_PAGES as u64, Relaxed);
    (start, entries)
}
