//! Regions whose faults come as SIGBUS to the faulting thread.

use folioswap::{Device, FaultMode, Region, Swap};
use std::fs::File;
use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const PAGE: usize = folioswap_devices::PAGE_SIZE;

fn swap(limit: &str) -> Swap {
    let file = Device::file("/var/tmp").size("256M").priority(0);
    let devices = Swap::builder().limit(limit).device(Device::zram().priority(1)).device(file);
    devices.sigbus().validate().build().unwrap()
}

fn word(seed: u64, number: usize) -> u64 {
    (seed << 32 | number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn fill(region: &mut [u8], seed: u64) {
    for (number, chunk) in region.chunks_exact_mut(16).enumerate() {
        chunk[..8].copy_from_slice(&word(seed, number).to_ne_bytes());
    }
}

fn check(region: &[u8], seed: u64) {
    for (number, chunk) in region.chunks_exact(16).enumerate() {
        assert_eq!(chunk[..8], word(seed, number).to_ne_bytes(), "chunk {number} of seed {seed}");
    }
}

fn is_sound(swap: &Swap) {
    let figure = |name| swap.statistics().counter(name).expect("its name");
    assert_eq!((figure("violations"), figure("pages_poisoned")), (0, 0));
}

#[test]
fn four_times_the_limit_beside_a_region_of_handler_threads() {
    let swap = swap("16M");
    let mut in_place = swap.region_with("40M", FaultMode::Sigbus).unwrap();
    let mut by_thread = swap.region("24M").unwrap();
    assert!(!in_place.serves_system_calls() && in_place.fault_mode() == FaultMode::Sigbus);
    for round in 0..2 {
        fill(in_place.as_mut_slice(), round);
        fill(by_thread.as_mut_slice(), 10 + round);
        check(in_place.as_slice(), round);
        check(by_thread.as_slice(), 10 + round);
    }
    let statistics = swap.statistics();
    assert!(statistics.charge() <= (16 << 20) + (9 << 20), "{statistics}");
    assert!(statistics.counter("pswpin").unwrap() > 10_000, "{statistics}");
    is_sound(&swap);
}

#[test]
fn threads_that_fault_at_once_lose_nothing() {
    const PART: usize = 8 << 20;
    let swap = swap("8M");
    let mut region = swap.region_with(4 * PART, FaultMode::Sigbus).unwrap();
    std::thread::scope(|scope| {
        for (thread, part) in region.as_mut_slice().chunks_mut(PART).enumerate() {
            scope.spawn(move || {
                for round in 0..3 {
                    let seed = (10 * thread + round) as u64;
                    fill(part, seed);
                    check(part, seed);
                }
            });
        }
    });
    // All threads use all memory, while ranges of it leave.
    fill(region.as_mut_slice(), 77);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let region = &region;
            scope.spawn(move || {
                for step in 0..4000_usize {
                    let number = (step * 7919 + thread * 104_729) % (region.len() / 16);
                    let chunk = &region.as_slice()[number * 16..number * 16 + 8];
                    assert_eq!(chunk, word(77, number).to_ne_bytes());
                }
            });
        }
        let region = &region;
        scope.spawn(move || {
            for step in 0..60 {
                let start = step * 523 % 500 * PAGE * 16;
                region.page_out(start..start + (256 << 10)).unwrap();
            }
        });
    });
    is_sound(&swap);
}

/// The stack that the documentation says a fault takes, and the stack of the test itself.
#[test]
fn a_thread_with_a_small_stack_serves_its_faults() {
    let swap = swap("8M");
    let mut region = swap.region_with("24M", FaultMode::Sigbus).unwrap();
    fill(region.as_mut_slice(), 21);
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size((64 + 16) << 10);
        thread.spawn_scoped(scope, || check(region.as_slice(), 21)).unwrap().join().unwrap();
    });
    is_sound(&swap);
}

#[test]
fn system_calls_need_what_is_pinned() {
    let swap = swap("32M");
    let mut region = swap.region_with("8M", FaultMode::Sigbus).unwrap();
    fill(region.as_mut_slice(), 3);
    region.page_out(..).unwrap();
    let mut zero = File::open("/dev/zero").unwrap();
    // SAFETY: within the region, and no other thread uses it.
    let page = unsafe { std::slice::from_raw_parts_mut(region.base().as_ptr(), PAGE) };
    let refused = zero.read_exact(page).map_err(|error| error.raw_os_error());
    assert_eq!(refused, Err(Some(libc::EFAULT)), "never wrong bytes");
    check(&region.as_slice()[..PAGE], 3);
    region.page_out(..).unwrap();
    let pinned = region.pin(..PAGE).unwrap();
    zero.read_exact(page).unwrap();
    drop(pinned);
    region.page_out(..).unwrap();
    assert!(region.as_slice()[..PAGE].iter().all(|&byte| byte == 0));
    check_rest(&region);
    is_sound(&swap);
}

fn check_rest(region: &Region) {
    for (number, chunk) in region.as_slice().chunks_exact(16).enumerate().skip(PAGE / 16) {
        assert_eq!(chunk[..8], word(3, number).to_ne_bytes());
    }
}

static PASSED_ON: AtomicUsize = AtomicUsize::new(0);
static HOLE: AtomicUsize = AtomicUsize::new(0);

/// A handler of the program's own, which maps memory where its fault was.
extern "C" fn of_the_program(_signal: i32, information: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel's argument; the page belongs to the test.
    unsafe {
        assert_eq!((*information).si_addr() as usize, HOLE.load(Relaxed));
        PASSED_ON.fetch_add(1, Relaxed);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        libc::mmap(HOLE.load(Relaxed) as *mut _, PAGE, libc::PROT_READ, flags, -1, 0);
    }
}

const CHILD: &str = "FOLIOSWAP_TEST_CHILD";

/// Runs the calling test once more, alone, in another process. `word` tells the child its part.
fn again(word: &str) -> std::process::Output {
    let name = std::thread::current().name().expect("a test has a name").to_owned();
    let program = std::env::current_exe().unwrap();
    let mut command = std::process::Command::new(program);
    command.args(["--exact", "--nocapture", &name]).env(CHILD, word).output().unwrap()
}

/// Touches a page of a file that ends before it: a SIGBUS that is not a region's.
fn touch_past_the_end_of_a_file() {
    let file = rustix::fs::memfd_create("empty", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let (read, shared) = (rustix::mm::ProtFlags::READ, rustix::mm::MapFlags::SHARED);
    // SAFETY: the mapping belongs to the test.
    unsafe {
        let place = rustix::mm::mmap(std::ptr::null_mut(), PAGE, read, shared, &file, 0).unwrap();
        HOLE.store(place as usize, Relaxed);
        place.cast::<u8>().read_volatile();
    }
}

#[test]
fn what_is_not_ours_goes_to_who_was_there_before() {
    match std::env::var(CHILD).as_deref() {
        Ok("handler") => {
            // SAFETY: installs a handler.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = of_the_program as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO;
                libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
            }
            let swap = swap("16M");
            let mut region = swap.region_with("24M", FaultMode::Sigbus).unwrap();
            fill(region.as_mut_slice(), 1);
            touch_past_the_end_of_a_file();
            check(region.as_slice(), 1);
            assert_eq!(PASSED_ON.load(Relaxed), 1);
        }
        Ok("none") => {
            let swap = swap("16M");
            let mut region = swap.region_with("24M", FaultMode::Sigbus).unwrap();
            fill(region.as_mut_slice(), 1);
            touch_past_the_end_of_a_file();
        }
        _ => {
            let output = again("handler");
            assert!(output.status.success(), "{output:?}");
            use std::os::unix::process::ExitStatusExt;
            assert_eq!(again("none").status.signal(), Some(libc::SIGBUS), "the default action");
        }
    }
}
