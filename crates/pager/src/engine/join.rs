//! The way in which a process becomes a member of its group, before its first fault is served; and
//! the end of a process that cannot.

use crate::engine::{Engine, Life, link};
use crate::kernel::failing;
use crate::kernel::sys;
use crate::kernel::uffd::Userfault;
use crate::kernel::window;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use folioswap_devices::Orders;
use folioswap_group::counters::Counter;
use folioswap_group::decisions::{Decisions, Forks};
use folioswap_group::devices::DEVICES_MAX;
use folioswap_group::protocol::Message as Control;
use folioswap_group::protocol::{Ending, Kind, Note, ProcFile, hello, welcome};
use folioswap_group::segment::{MEMBERS_MAX, Segment};
use folioswap_slots::DeviceMask;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

/// Joins the group: opens the descriptors that are needed, or asks for those that the process may
/// not open any more; says hello, maps decisions and segment, takes over a forked child's
/// userfaultfd.
pub(crate) fn join(engine: &Engine) -> Result<(), Errno> {
    let descriptors = &engine.descriptors;
    let missing = descriptors.open_files()?;
    let control = link::connect_to(engine.group_name(), engine.agent_path())?;
    descriptors.control.store(control, Relaxed);
    let token = engine.fork.inherited_token();
    let [low, high] = token.words();
    link::send(control, &Control::new(Kind::Hello, [low, high, missing | hello::OF_PARENT]), None)?;
    let (answer, came) = link::receive(control)?;
    if answer.kind() != Some(Kind::Welcome) {
        return Err(Errno::CONNREFUSED);
    }
    let [id, flags, devices] = answer.words;
    let id = member_id(id)?;
    engine.confinement.note_filters(welcome::filters(flags));
    let devices = DeviceMask::from_bits(devices as u32);
    let count = (devices.len() as usize).min(DEVICES_MAX);
    let ([decisions, segment], device_descriptors) = ([came[0], came[1]], &came[2..count + 2]);
    let mut others = came[count + 2..].iter().copied();
    let mut announced = |flag| if flags & flag != 0 { others.next() } else { None };
    let (ring, userfault) = (announced(welcome::TRACE), announced(welcome::USERFAULT));
    let device = announced(welcome::DEVICE);
    if missing != 0 && flags & welcome::FILES == 0 {
        return Err(Errno::ACCESS);
    }
    for (file, descriptor) in ProcFile::of_mask(missing).zip(others) {
        if descriptor < 0 {
            return Err(Errno::MFILE);
        }
        descriptors.keep(file, descriptor);
    }
    let some_are_missing = decisions < 0 || segment < 0 || device_descriptors.contains(&-1);
    if some_are_missing || [ring, userfault, device].contains(&Some(-1)) {
        // The program's own limit allows fewer descriptors than the supervisor sends.
        return Err(Errno::MFILE);
    }
    if engine.membership.segment.load(Acquire).is_null() {
        map_group(engine, decisions, segment)?;
    }
    for descriptor in [decisions, segment] {
        sys::close_range(descriptor as u32, descriptor as u32);
    }
    let described = DeviceMask::ALL.iter().zip(engine.decisions().devices());
    let shared = described.filter(|(number, _)| devices.contains(*number));
    engine.space.shared_devices().forget_all();
    for ((number, (device, entry)), &descriptor) in shared.zip(device_descriptors) {
        engine.space.shared_devices().set(number, device, descriptor);
        engine.space.shared_devices().set_orders(number, Orders::from_bits(entry.orders()));
    }
    engine.membership.member.store(id, Release);
    let failures = engine.decisions().failures();
    failing::set(failures.seed ^ u64::from(sys::getpid()), failures.rate);
    if let Some(ring) = ring {
        engine.trace_into(ring)?;
    }
    match engine.forks() {
        Forks::Reported if !token.is_none() => inherit_userfault(engine, userfault),
        forks => open_userfault(engine, forks, device),
    }?;
    if !token.is_none() {
        engine.figures().add(Counter::Forks, 1);
    }
    device.into_iter().for_each(|device| sys::close_range(device as u32, device as u32));
    Ok(())
}

/// Takes over the userfaultfd that the kernel made for this child at its fork, from the parent that
/// serves it until then.
fn inherit_userfault(engine: &Engine, userfault: Option<i32>) -> Result<(), Errno> {
    let userfault = userfault.ok_or(Errno::BADF)?;
    if !Userfault(userfault).is_own(engine.descriptors.pagemap.load(Relaxed))? {
        engine.report_failure(Errno::XDEV);
        return Err(Errno::XDEV);
    }
    engine.descriptors.userfault.store(userfault, Relaxed);
    engine.fork.take_over(engine);
    Ok(())
}

/// Opens the process's own userfaultfd. Nothing is registered with it yet: a child of the gate's
/// runs no code of the program before all is.
fn open_userfault(engine: &Engine, forks: Forks, device: Option<i32>) -> Result<(), Errno> {
    let calls = engine.decisions().call_faults();
    let userfault = Userfault::open(forks, calls, device).inspect_err(|errno| {
        let words = [Note::NoUserfault as u64, errno.raw_os_error() as u64, 0];
        let control = engine.descriptors.control.load(Relaxed);
        let _ = link::send(control, &Control::new(Kind::Note, words), None);
    })?;
    engine.descriptors.userfault.store(userfault.0, Relaxed);
    if !engine.fork.inherited_token().is_none() {
        engine.watch_inherited_targets()?;
    }
    Ok(())
}

/// Maps the memories of the group: the decisions for reading, since their seals allow nothing else.
fn map_group(engine: &Engine, decisions: i32, segment: i32) -> Result<(), Errno> {
    let map = |descriptor, bytes, access| {
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping of a descriptor that is open, and that the supervisor sized to the
        // layout.
        unsafe {
            let descriptor = BorrowedFd::borrow_raw(descriptor);
            rustix::mm::mmap(window::place(bytes), bytes, access, flags, descriptor, 0)
        }
    };
    let place = map(decisions, Decisions::BYTES, ProtFlags::READ)?;
    engine.membership.decisions.store(place.cast(), Release);
    engine.decisions().check().map_err(|_| Errno::PROTO)?;
    let place = map(segment, Segment::BYTES, ProtFlags::READ | ProtFlags::WRITE)?;
    engine.membership.segment.store(place.cast(), Release);
    Ok(())
}

/// The number of this member's entry, as the welcome has it.
fn member_id(word: u64) -> Result<u32, Errno> {
    u32::try_from(word).ok().filter(|&id| (id as usize) < MEMBERS_MAX).ok_or(Errno::PROTO)
}

/// How long a program may take to end.
const ENDING_NS: u64 = 20_000_000;

/// Leaves this process unmanaged, because it cannot be managed. If none of its memory was ever
/// swapped out it simply runs on; a child of a managed process must not.
pub(crate) fn leave(engine: &Engine, why: Errno) -> ! {
    if engine.is_engaged() {
        // A program that ends has no memory any more a moment before it is seen to have ended: that
        // is why then.
        let until_ns = sys::now_ns() + ENDING_NS;
        while sys::now_ns() < until_ns {
            if !engine.program_is_parent() {
                sys::exit_group(0);
            }
            rustix::thread::sched_yield();
        }
        if engine.say_end(Ending::NotJoined, Some(why)).is_err() {
            engine.fork.tell_parents_entry(engine, why);
        }
        engine.kill_program();
    }
    engine.threads.life.store(Life::Unmanaged as u32, Release);
    let _ = rustix::thread::futex::wake(
        &engine.threads.life,
        rustix::thread::futex::Flags::PRIVATE,
        i32::MAX as u32,
    );
    sys::exit_group(0)
}
