//! Swaps in other circumstances: forks, threads that fault in a region while it is dropped, a
//! process without privilege, programs that close all descriptors, `folioswap run` around a
//! program.

#[path = "common/leaving.rs"]
mod leaving;

use folioswap::{Device, Error, FaultMode, Gate, Swap, WhenFull};
use leaving::leaves;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const PAGE: usize = folioswap_devices::PAGE_SIZE;
const CHILD: &str = "FOLIOSWAP_TEST_CHILD";

/// Returns a command that runs the calling test once more, alone, in another process. `word` tells
/// the child its part.
fn again(word: &str) -> Command {
    let name = std::thread::current().name().expect("a test has a name").to_owned();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--nocapture", &name]).env(CHILD, word);
    command
}

/// Runs a command for at most half a minute.
fn run(mut command: Command) -> Output {
    let mut child =
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > until {
            child.kill().unwrap();
            panic!("it hangs: {:?}", child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

fn is_child(word: &str) -> bool {
    std::env::var(CHILD).is_ok_and(|found| found == word)
}

fn filled(swap: &Swap, bytes: usize, mode: FaultMode) -> folioswap::Region {
    let mut region = swap.region_with(bytes, mode).unwrap();
    for (number, page) in region.as_mut_slice().chunks_mut(PAGE).enumerate() {
        page.fill(number as u8 | 1);
    }
    region
}

fn check(region: &folioswap::Region) {
    for (number, page) in region.as_slice().chunks(PAGE).enumerate() {
        assert!(page.iter().all(|&byte| byte == number as u8 | 1), "page {number}");
    }
}

/// Returns the status of a forked child, which exits with 0 when `work` returns true.
fn in_forked_child(work: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child takes no lock that another thread may hold, and ends by _exit.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let result = work();
            libc::_exit(i32::from(!result));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        status
    }
}

#[test]
fn a_forked_child_has_none_of_it_and_its_parent_loses_nothing() {
    let swap = Swap::builder().limit("16M").sigbus().build().unwrap();
    for mode in [FaultMode::HandlerThreads, FaultMode::Sigbus] {
        let region = filled(&swap, 32 << 20, mode);
        let status = in_forked_child(|| {
            let refused = matches!(swap.region(1), Err(Error::Forked))
                && matches!(region.page_out(..), Err(Error::Forked))
                && matches!(region.pin(..PAGE), Err(Error::Forked))
                && matches!(swap.set_limit("32M"), Err(Error::Forked))
                && swap.limit() == 16 << 20
                && swap.statistics().counter("pswpout").is_some_and(|pages| pages > 0);
            drop(region);
            drop(swap.clone());
            refused
        });
        assert_eq!(status, 0);
        let region = filled(&swap, 32 << 20, mode);
        let status = in_forked_child(|| region.as_slice()[0] == 1);
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV, "never wrong bytes");
        check(&region);
    }
}

#[test]
fn a_program_that_forks_all_the_time_keeps_its_memory() {
    let swap = Swap::builder().limit("8M").build().unwrap();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Relaxed) {
                assert!(Command::new("/bin/true").status().unwrap().success());
                assert_eq!(in_forked_child(|| true), 0);
            }
        });
        for _ in 0..3 {
            check(&filled(&swap, 16 << 20, FaultMode::HandlerThreads));
        }
        ended.store(true, Relaxed);
    });
}

/// A thread goes through the region by raw pointers until it is told to stop, and the region is
/// dropped meanwhile.
#[test]
fn a_region_that_goes_while_another_thread_faults_in_it_ends_that_thread_by_a_signal_or_not_at_all() {
    for mode in [FaultMode::HandlerThreads, FaultMode::Sigbus] {
        let word = format!("{mode:?}");
        if is_child(&word) {
            let swap = Swap::builder().limit("8M").sigbus().build().unwrap();
            let region = filled(&swap, 24 << 20, mode);
            let (base, pages) = (region.base().as_ptr() as usize, region.len() / PAGE);
            let started = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for number in 0.. {
                        let page = number * 7919 % pages;
                        // SAFETY: breaks the rule for dropping a region, on purpose.
                        let byte = unsafe { ((base + page * PAGE) as *const u8).read_volatile() };
                        // The contents are discarded just before the region is unmapped, so zero is
                        // right too.
                        assert!(byte == page as u8 | 1 || byte == 0, "page {page} has {byte}");
                        started.store(number > 100, Relaxed);
                    }
                });
                while !started.load(Relaxed) {
                    std::thread::yield_now();
                }
                drop(region);
            });
        } else if std::env::var_os(CHILD).is_none() {
            for _ in 0..5 {
                let output = run(again(&word));
                assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{output:?}");
            }
        }
    }
}

#[test]
fn regions_come_and_go_while_threads_fault_in_others() {
    let swap = Swap::builder().limit("8M").sigbus().validate().build().unwrap();
    std::thread::scope(|scope| {
        for mode in [FaultMode::HandlerThreads, FaultMode::Sigbus] {
            let swap = &swap;
            scope.spawn(move || (0..4).for_each(|_| check(&filled(swap, 8 << 20, mode))));
            scope.spawn(move || (0..40).for_each(|_| check(&filled(swap, 1 << 20, mode))));
        }
    });
    assert_eq!(swap.statistics().counter("violations"), Some(0));
}

#[test]
fn without_privilege_only_system_calls_on_what_is_away_fail() {
    if is_child("nobody") {
        let swap = Swap::builder().limit("16M").device(Device::zram()).gate(Gate::Never).build().unwrap();
        assert!(!swap.serves_system_calls());
        let mut region = swap.region("4M").unwrap();
        region.as_mut_slice().fill(7);
        assert_eq!(leaves(&region, 0..4 << 20, 0), 0);
        let mut zeroes = std::fs::File::open("/dev/zero").unwrap();
        // SAFETY: within the region, and no other thread uses it.
        let page = unsafe { std::slice::from_raw_parts_mut(region.base().as_ptr(), PAGE) };
        let refused = std::io::Read::read_exact(&mut zeroes, page).map_err(|error| error.raw_os_error());
        assert_eq!(refused, Err(Some(libc::EFAULT)), "an error, never wrong bytes");
        let pinned = region.pin(..PAGE).unwrap();
        std::io::Read::read_exact(&mut zeroes, page).unwrap();
        drop(pinned);
        region.will_need(..).unwrap();
        assert!(region.as_slice()[..PAGE].iter().all(|&byte| byte == 0));
        assert!(region.as_slice()[PAGE..].iter().all(|&byte| byte == 7));
        let region = filled(&swap, 24 << 20, FaultMode::HandlerThreads);
        check(&region);
    } else if std::env::var_os(CHILD).is_none() {
        if rustix::process::geteuid().as_raw() != 0 {
            eprintln!("skipped: only root can give up its privilege");
            return;
        }
        let mut command = again("nobody");
        // Another user may not read the directory of the test program.
        let copy = std::path::PathBuf::from(format!("/var/tmp/folioswap-test-{}", std::process::id()));
        std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
        let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        command = Command::new(&copy);
        let output = run({
            command.args(arguments).env(CHILD, "nobody").current_dir("/").uid(65534).gid(65534);
            command
        });
        std::fs::remove_file(&copy).unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

#[test]
fn a_program_may_close_what_it_does_not_know() {
    if is_child("closes") {
        let swap = Swap::builder().limit("16M").build().unwrap();
        let mut region = filled(&swap, 48 << 20, FaultMode::HandlerThreads);
        // SAFETY: this program uses no descriptor above 2 afterwards.
        unsafe { libc::close_range(3, u32::MAX, 0) };
        check(&region);
        region.dont_need(..).unwrap();
        drop(region);
        check(&filled(&swap, 48 << 20, FaultMode::HandlerThreads));
    } else if std::env::var_os(CHILD).is_none() {
        let output = run(again("closes"));
        assert!(output.status.success(), "{output:?}");
    }
}

#[test]
fn a_limit_that_must_be_kept_ends_the_process_with_one_message() {
    if is_child("full") {
        let file = Device::file("/var/tmp").size("2M");
        let swap = Swap::builder().limit("8M").device(file).when_full(WhenFull::Abort).build().unwrap();
        drop(filled(&swap, 20 << 20, FaultMode::HandlerThreads));
    } else if std::env::var_os(CHILD).is_none() {
        let output = run(again("full"));
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            said.matches("all swap devices are full and the limit of 8.0 MiB is reached").count(),
            1,
            "{said}"
        );
    }
}

#[test]
fn a_child_that_drops_everything_harms_nobody() {
    let swap = Swap::builder().limit("16M").sigbus().build().unwrap();
    let mut all = Some((
        filled(&swap, 24 << 20, FaultMode::Sigbus),
        filled(&swap, 1 << 20, FaultMode::HandlerThreads),
        swap,
    ));
    // The value is taken in the child alone.
    assert_eq!(
        in_forked_child(|| all.take().is_some_and(|all| {
            drop(all);
            true
        })),
        0
    );
    let (in_place, by_thread, swap) = all.expect("the parent's");
    check(&in_place);
    check(&by_thread);
    drop((in_place, by_thread, swap));
}

#[test]
fn no_descriptor_and_no_thread_is_left_behind() {
    // In this process the descriptors and threads of other tests would be counted too.
    if !is_child("alone") {
        let output = run(again("alone"));
        assert!(output.status.success(), "{output:?}");
        return;
    }
    let count = |what: &str| std::fs::read_dir(what).unwrap().count();
    let (files, threads) = (count("/proc/self/fd"), count("/proc/self/task"));
    for _ in 0..3 {
        let swap = Swap::builder().limit("16M").sigbus().build().unwrap();
        let region = filled(&swap, 1 << 20, FaultMode::Sigbus);
        drop(swap);
        check(&region);
    }
    for _ in 0..3 {
        let swap = Swap::builder().limit("16M").build().unwrap();
        assert_eq!(count("/proc/self/fd"), files, "what serves by threads holds none in the program's table");
        drop(swap);
    }
    assert_eq!(count("/proc/self/fd"), files);
    // A thread may be listed for a moment after it was joined.
    let until = Instant::now() + Duration::from_secs(5);
    while count("/proc/self/task") > threads {
        assert!(Instant::now() < until);
    }
}

#[test]
fn under_folioswap_run_it_refuses() {
    if is_child("run") {
        assert!(Swap::is_managed_already());
        assert!(matches!(Swap::builder().limit("16M").build(), Err(Error::UnderRun)));
    } else if std::env::var_os(CHILD).is_none() {
        let mut command = again("run");
        command.env(folioswap_group::protocol::GROUP_VARIABLE, "a group");
        let output = run(command);
        assert!(output.status.success(), "{output:?}");
    }
}
