//! System calls of the C library on regions, without privilege: each finds what is away, and none
//! loses anything. Each test is a process of its own, since the gate is put there once.

#[path = "common/again.rs"]
mod again;
#[path = "common/leaving.rs"]
mod leaving;

use again::{as_nobody, as_oneself, is_child};
use folioswap::{Device, FaultMode, Gate, Region, Swap};
use folioswap_test_support::random::Random;
use leaving::leaves;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::Command;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

const MIB: usize = 1 << 20;
const PAGE: usize = 4096;

/// Runs a test as an ordinary user; and as this one, where the kernel fails calls on regions whose
/// faults come as SIGBUS.
fn in_both_ways(test: impl Fn(Swap, FaultMode)) {
    let file = || Device::file("/var/tmp").size("64M").priority(0);
    let builder = || Swap::builder().limit("8M").device(Device::zram().priority(1)).device(file());
    if is_child("nobody") {
        test(builder().build().unwrap(), FaultMode::HandlerThreads);
    } else if is_child("sigbus") {
        test(builder().sigbus().gate(Gate::Always).build().unwrap(), FaultMode::Sigbus);
    } else {
        as_nobody("nobody");
        as_oneself("sigbus");
    }
}

/// A region for operands of calls: each has pages of its own, and leaves before the call.
struct Operands(Region);

impl Operands {
    fn new(swap: &Swap, mode: FaultMode) -> Self {
        let mut region = swap.region_with(64 * PAGE, mode).unwrap();
        region.as_mut_slice().fill(0xaa);
        Operands(region)
    }

    /// Puts bytes at the end of a page, so that they reach into the next, and returns where.
    fn put(&self, page: usize, bytes: &[u8]) -> *mut libc::c_void {
        let at = self.at(page).cast::<u8>();
        // SAFETY: within the region; nobody has a slice of it.
        unsafe { at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        at.cast()
    }

    /// Where an operand lies: eight bytes before the end of a page, so that most reach into the
    /// next.
    fn at(&self, page: usize) -> *mut libc::c_void {
        // SAFETY: within the region.
        unsafe { self.0.base().as_ptr().add((page + 1) * PAGE - 8).cast() }
    }

    fn get<T: Copy>(&self, page: usize) -> T {
        // SAFETY: within the region, and any bytes are a value of the types that are asked for.
        unsafe { self.at(page).cast::<T>().read_unaligned() }
    }

    fn leave(&self) {
        assert_eq!(leaves(&self.0, 0..self.0.len(), 0), 0, "all of it is away");
    }
}

fn done(result: libc::c_long) -> libc::c_long {
    assert!(result >= 0, "{}", std::io::Error::last_os_error());
    result
}

/// The calls that fail or lose something where their memory is away (GATE.md names them), and more.
#[test]
fn calls_of_every_kind_find_what_is_away() {
    in_both_ways(|swap, mode| {
        assert!(swap.serves_system_calls());
        let operands = Operands::new(&swap, mode);
        assert!(operands.0.serves_system_calls());
        let mut file = unnamed_file(Adds::No);
        file.write_all(&[7; 3 * PAGE]).unwrap();
        let fd = file.as_raw_fd();
        let (mut pipe, mut datagrams) = ([0; 2], [0; 2]);
        // SAFETY: all operands are within the region or local, and live over the calls.
        unsafe {
            libc::pipe(pipe.as_mut_ptr());
            libc::socketpair(libc::AF_UNIX, libc::SOCK_DGRAM, 0, datagrams.as_mut_ptr());
            operands.leave();
            assert_eq!(done(libc::pread(fd, operands.at(0), 2 * PAGE, 0) as i64), 2 * PAGE as i64);
            assert_eq!(operands.get::<[u8; 2 * PAGE]>(0), [7; 2 * PAGE]);
            operands.put(4, b"written");
            operands.leave();
            done(libc::pwrite(fd, operands.at(4), 7, 0) as i64);
            let mut head = [0; 8];
            file.read_exact_at(&mut head, 0).unwrap();
            assert_eq!(&head, b"written\x07");
            // A datagram, the count of an eventfd, and a child's status are lost with an error.
            done(libc::send(datagrams[0], c"datagram".as_ptr().cast(), 8, 0) as i64);
            operands.leave();
            assert_eq!(done(libc::recv(datagrams[1], operands.at(8), PAGE, 0) as i64), 8);
            assert_eq!(&operands.get::<[u8; 8]>(8), b"datagram");
            let events = libc::eventfd(5, 0);
            operands.leave();
            done(libc::read(events, operands.at(9), 8) as i64);
            assert_eq!(operands.get::<u64>(9), 5);
            let child = libc::fork();
            if child == 0 {
                libc::_exit(3);
            }
            operands.leave();
            assert_eq!(libc::waitpid(child, operands.at(10).cast(), 0), child);
            assert_eq!(operands.get::<i32>(10) >> 8, 3);
            operands.leave();
            done(libc::pipe2(operands.at(11).cast(), libc::O_CLOEXEC).into());
            assert!(operands.get::<[i32; 2]>(11)[1] > 2);
            operands.leave();
            done(libc::fstat(fd, operands.at(12).cast()).into());
            assert_eq!(operands.get::<libc::stat>(12).st_size, 3 * PAGE as i64);
            operands.put(14, b"/proc/self/status\0");
            operands.leave();
            done(libc::open(operands.at(14).cast(), libc::O_RDONLY).into());
            operands.leave();
            done(libc::readlink(c"/proc/self/exe".as_ptr(), operands.at(16).cast(), 200) as i64);
            operands.leave();
            assert_eq!(done(libc::getrandom(operands.at(18), PAGE, 0) as i64), PAGE as i64);
            operands.leave();
            done(libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_REALTIME, operands.at(20)));
            assert!(operands.get::<libc::timespec>(20).tv_sec > 1_000_000_000);
            // Vectors, in a region themselves, that lead into it.
            let vector =
                [22, 24].map(|page| libc::iovec { iov_base: operands.at(page), iov_len: PAGE + 100 });
            let bytes = std::slice::from_raw_parts(vector.as_ptr().cast::<u8>(), size_of_val(&vector));
            operands.put(26, bytes);
            operands.leave();
            assert_eq!(done(libc::preadv(fd, operands.at(26).cast(), 2, 0) as i64), 2 * PAGE as i64 + 200);
            assert_eq!(operands.get::<[u8; 100]>(24), [7; 100]);
            let mut message: libc::msghdr = std::mem::zeroed();
            (message.msg_iov, message.msg_iovlen) = (operands.at(26).cast(), 2);
            let bytes = std::slice::from_raw_parts((&raw const message).cast::<u8>(), size_of_val(&message));
            operands.put(28, bytes);
            done(libc::send(datagrams[0], c"in a message".as_ptr().cast(), 12, 0) as i64);
            operands.leave();
            assert_eq!(done(libc::recvmsg(datagrams[1], operands.at(28).cast(), 0) as i64), 12);
            assert_eq!(&operands.get::<[u8; 12]>(22), b"in a message");
            let epoll = libc::epoll_create1(0);
            let event = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: 77 };
            let bytes = std::slice::from_raw_parts((&raw const event).cast::<u8>(), size_of_val(&event));
            operands.put(30, bytes);
            operands.leave();
            done(libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, pipe[0], operands.at(30).cast()).into());
            libc::write(pipe[1], c"x".as_ptr().cast(), 1);
            operands.leave();
            assert_eq!(done(libc::epoll_wait(epoll, operands.at(32).cast(), 4, 1000).into()), 1);
            let event = operands.get::<libc::epoll_event>(32);
            assert_eq!({ event.u64 }, 77);
            let set = [1u64 << pipe[0]; 16];
            operands.put(34, std::slice::from_raw_parts(set.as_ptr().cast(), 128));
            operands.leave();
            let none = null_mut();
            assert_eq!(libc::select(pipe[0] + 1, operands.at(34).cast(), none, none, null_mut()), 1);
            operands.leave();
            done(libc::uname(operands.at(36).cast()).into());
            operands.leave();
            let directory = libc::open(c"/proc/self".as_ptr(), libc::O_RDONLY);
            done(libc::syscall(libc::SYS_getdents64, directory, operands.at(38), PAGE));
            // Standard I/O, from within the C library.
            let out = libc::fdopen(libc::dup(fd), c"w".as_ptr());
            operands.put(40, &[9; 3 * PAGE]);
            operands.leave();
            libc::fseek(out, 0, libc::SEEK_SET);
            assert_eq!(libc::fwrite(operands.at(40), 1, 3 * PAGE, out), 3 * PAGE);
            libc::fclose(out);
            let mut whole = [0; 3 * PAGE];
            file.read_exact_at(&mut whole, 0).unwrap();
            assert_eq!(whole, [9; 3 * PAGE]);
            // What is not memory of anybody is the kernel's to refuse.
            assert_eq!(libc::pread(fd, 8 as *mut _, 8, 0), -1);
            assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EFAULT));
            assert_eq!(libc::open(null(), 0), -1);
        }
    });
}

/// A file without a name, for reading and writing; or for reading and adding to it.
fn unnamed_file(adds: Adds) -> File {
    let mut options = File::options();
    options.read(true).write(true).append(adds == Adds::Yes).custom_flags(libc::O_TMPFILE);
    options.open("/var/tmp").unwrap()
}

/// Whether writes are added to a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Adds {
    Yes,
    No,
}

fn byte(at: usize) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8
}

#[test]
fn one_call_goes_over_more_than_the_limit() {
    in_both_ways(|swap, mode| {
        let bytes = 24 * MIB + 123;
        let mut region = swap.region_with(bytes, mode).unwrap();
        region.as_mut_slice().iter_mut().enumerate().for_each(|(at, to)| *to = byte(at));
        let mut file = unnamed_file(Adds::No);
        // SAFETY: within the region; nobody has a slice of it.
        let written = unsafe { libc::write(file.as_raw_fd(), region.base().as_ptr().cast(), bytes) };
        assert_eq!(written, bytes as isize, "a file is written whole");
        region.as_mut_slice().fill(0);
        file.rewind().unwrap();
        file.read_exact(region.as_mut_slice()).unwrap();
        assert!(region.as_slice().iter().enumerate().all(|(at, found)| *found == byte(at)));
        // Vectors, and a record that is added to a file, which otherwise is written as a whole.
        let half = bytes / 2;
        let base = region.base().as_ptr();
        let vector = [(0, half), (half, bytes - half)];
        let vector = vector
            .map(|(at, length)| libc::iovec { iov_base: base.wrapping_add(at).cast(), iov_len: length });
        let added = unnamed_file(Adds::Yes);
        // SAFETY: the vectors lie within the region.
        unsafe {
            assert_eq!(libc::pwritev(file.as_raw_fd(), vector.as_ptr(), 2, 7), bytes as isize);
            assert_eq!(libc::write(added.as_raw_fd(), base.cast(), bytes), bytes as isize);
            region.as_mut_slice().fill(0);
            assert_eq!(libc::preadv(file.as_raw_fd(), vector.as_ptr(), 2, 7), bytes as isize);
            assert!(region.as_slice().iter().enumerate().all(|(at, found)| *found == byte(at)));
            region.as_mut_slice().fill(0);
            assert_eq!(libc::pread(added.as_raw_fd(), base.cast(), bytes, 0), bytes as isize);
        }
        assert!(region.as_slice().iter().enumerate().all(|(at, found)| *found == byte(at)));
        // What has too many parts is done as far as it goes.
        let parts: Vec<_> = (0..700)
            .map(|part| libc::iovec { iov_base: base.wrapping_add(part * 32768).cast(), iov_len: 32768 })
            .collect();
        // SAFETY: the vectors lie within the region.
        let some = unsafe { libc::pwritev(file.as_raw_fd(), parts.as_ptr(), 700, 0) };
        assert!(some > 0, "{}", std::io::Error::last_os_error());
        let mut first = vec![0; some as usize];
        file.read_exact_at(&mut first, 0).unwrap();
        assert!(first.iter().enumerate().all(|(at, found)| *found == byte(at)));
        assert_eq!(swap.statistics().times_exceeded(), 0);
        assert!(swap.statistics().charge() <= swap.limit() + swap.limit() / 40 + (8 << 20));
    });
}

/// Threads send pieces of a region through pipes and files while another takes all of it out again
/// and again.
#[test]
fn threads_make_calls_while_everything_leaves() {
    in_both_ways(|swap, mode| {
        const THREADS: usize = 4;
        let is_over = AtomicBool::new(false);
        let regions: Vec<Region> = (0..THREADS).map(|_| swap.region_with(4 * MIB, mode).unwrap()).collect();
        std::thread::scope(|scope| {
            let workers: Vec<_> = regions
                .iter()
                .enumerate()
                .map(|(number, region)| scope.spawn(move || send_about(region, number)))
                .collect();
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    regions.iter().for_each(|region| region.page_out(..).unwrap());
                }
            });
            let outcome: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
            is_over.store(true, Relaxed);
            outcome.into_iter().for_each(|outcome| outcome.unwrap());
        });
    });
}

/// Copies pieces of a region to places of it, by calls, and keeps a plain copy beside it.
fn send_about(region: &Region, seed: usize) {
    let (mut from, mut to) = std::io::pipe().unwrap();
    let file = unnamed_file(Adds::No);
    let mut plain: Vec<u8> = (0..region.len()).map(|at| byte(at ^ seed)).collect();
    // SAFETY: this thread alone uses the region.
    let bytes = unsafe { std::slice::from_raw_parts_mut(region.base().as_ptr(), region.len()) };
    bytes.copy_from_slice(&plain);
    let mut random = Random::new(seed as u64 + 1);
    let mut below = |bound: usize| random.below(bound as u64) as usize;
    for _ in 0..600 {
        let length = 1 + below(40_000);
        let (source, target) = (below(bytes.len() - length), below(bytes.len() - length));
        if below(2) == 0 {
            to.write_all(&bytes[source..source + length]).unwrap();
            from.read_exact(&mut bytes[target..target + length]).unwrap();
        } else {
            file.write_all_at(&bytes[source..source + length], 5).unwrap();
            file.read_exact_at(&mut bytes[target..target + length], 5).unwrap();
        }
        plain.copy_within(source..source + length, target);
    }
    assert!(bytes == plain.as_slice());
}

/// The C library's code is changed while threads wait in it, run through it, and run handlers that
/// have interrupted it.
#[test]
fn the_gate_is_put_there_while_threads_are_in_calls() {
    if !is_child("nobody") {
        return as_nobody("nobody");
    }
    static STARTED: AtomicUsize = AtomicUsize::new(0);
    static OVER: AtomicBool = AtomicBool::new(false);
    extern "C" fn handler(_: i32) {
        // A call within a handler that has interrupted a call.
        // SAFETY: sleeps.
        unsafe { libc::usleep(50) };
    }
    // SAFETY: a handler that only sleeps.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as extern "C" fn(i32) as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGUSR1, &raw const action, null_mut());
    }
    let (mut from, mut to) = std::io::pipe().unwrap();
    let waits = move || {
        let mut byte = [0];
        from.read_exact(&mut byte).unwrap();
    };
    let runs = || {
        let mut count = 0;
        while !OVER.load(Relaxed) {
            // SAFETY: short calls with nothing to lose.
            unsafe {
                assert_eq!(libc::getppid() as i64, libc::syscall(libc::SYS_getppid));
                libc::sched_yield();
                assert_eq!(libc::close(-1), -1);
                count += i32::from(libc::usleep(1) == 0);
            }
        }
        assert!(count > 0);
    };
    let begun = |work: Box<dyn FnOnce() + Send>| {
        std::thread::spawn(move || {
            STARTED.fetch_add(1, Relaxed);
            work();
        })
    };
    let mut threads = vec![begun(Box::new(waits))];
    threads.extend((0..8).map(|_| begun(Box::new(runs))));
    let lock = std::sync::Arc::new((std::sync::Mutex::new(false), std::sync::Condvar::new()));
    threads.extend((0..8).map(|_| {
        let lock = std::sync::Arc::clone(&lock);
        begun(Box::new(move || {
            let guard = lock.0.lock().unwrap();
            drop(lock.1.wait_while(guard, |over| !*over).unwrap());
        }))
    }));
    while STARTED.load(Relaxed) < threads.len() {
        std::thread::yield_now();
    }
    use std::os::unix::thread::JoinHandleExt;
    let targets: Vec<_> = threads.iter().map(|thread| thread.as_pthread_t()).collect();
    let sender = std::thread::spawn(move || {
        while !OVER.load(Relaxed) {
            // SAFETY: the threads are joined after this one.
            targets.iter().for_each(|thread| unsafe {
                libc::pthread_kill(*thread, libc::SIGUSR1);
            });
            std::thread::sleep(Duration::from_micros(200));
        }
    });
    std::thread::sleep(Duration::from_millis(20));
    let swap = Swap::builder().limit("8M").device(Device::zram()).build().unwrap();
    assert!(swap.serves_system_calls());
    std::thread::sleep(Duration::from_millis(50));
    OVER.store(true, Relaxed);
    sender.join().unwrap();
    to.write_all(&[1]).unwrap();
    *lock.0.lock().unwrap() = true;
    lock.1.notify_all();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let operands = Operands::new(&swap, FaultMode::HandlerThreads);
    operands.leave();
    let zeroes = File::open("/dev/zero").unwrap();
    // SAFETY: within the region.
    assert_eq!(unsafe { libc::read(zeroes.as_raw_fd(), operands.at(0), PAGE) }, PAGE as isize);
}

/// Handlers run while calls wait, and make calls of their own on the region.
#[test]
fn signals_arrive_during_calls() {
    in_both_ways(|swap, mode| {
        static REGION: AtomicUsize = AtomicUsize::new(0);
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        static BEGUN: AtomicUsize = AtomicUsize::new(0);
        static SOURCE: AtomicI32 = AtomicI32::new(-1);
        extern "C" fn handler(_: i32) {
            BEGUN.fetch_add(1, SeqCst);
            let at = REGION.load(Relaxed) as *mut libc::c_void;
            // SAFETY: the last pages of the region are the handler's.
            unsafe {
                let errno = *libc::__errno_location();
                let source = SOURCE.load(Relaxed);
                assert_eq!(libc::pread(source, at, 3 * PAGE, 0), 3 * PAGE as isize);
                *libc::__errno_location() = errno;
            }
            COUNT.fetch_add(1, SeqCst);
        }
        let region = swap.region_with(4 * MIB, mode).unwrap();
        let mut source = unnamed_file(Adds::No);
        source.write_all(&[5; 3 * PAGE]).unwrap();
        SOURCE.store(source.as_raw_fd(), Relaxed);
        REGION.store(region.base().as_ptr() as usize + 4 * MIB - 3 * PAGE, Relaxed);
        // SAFETY: a handler that makes one call, and a timer.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as extern "C" fn(i32) as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(libc::SIGALRM, &raw const action, null_mut());
            let each = libc::timeval { tv_sec: 0, tv_usec: 1000 };
            libc::setitimer(
                libc::ITIMER_REAL,
                &libc::itimerval { it_interval: each, it_value: each },
                null_mut(),
            );
        }
        let (mut from, mut to) = std::io::pipe().unwrap();
        let writer = std::thread::spawn(move || {
            for round in 0..300usize {
                std::thread::sleep(Duration::from_millis(1));
                to.write_all(&[round as u8; 3000]).unwrap();
            }
        });
        // SAFETY: the handler uses other pages.
        let bytes = unsafe { std::slice::from_raw_parts_mut(region.base().as_ptr(), 3000) };
        for round in 0..300usize {
            region.page_out(..).unwrap();
            from.read_exact(bytes).unwrap();
            assert!(bytes.iter().all(|byte| *byte == round as u8));
        }
        writer.join().unwrap();
        let none = libc::timeval { tv_sec: 0, tv_usec: 0 };
        let never = libc::itimerval { it_interval: none, it_value: none };
        // SAFETY: ends the timer.
        unsafe { libc::setitimer(libc::ITIMER_REAL, &never, null_mut()) };
        // One may still run, in another thread, and the region must be there until it has.
        std::thread::sleep(Duration::from_millis(5));
        while BEGUN.load(SeqCst) != COUNT.load(SeqCst) {
            std::thread::yield_now();
        }
        assert!(COUNT.load(SeqCst) > 50);
    });
}

/// Children are spawned by several threads, and forked beside them; and some make a swap of their
/// own.
#[test]
fn children_begin_and_end() {
    in_both_ways(|swap, mode| {
        let region = swap.region_with(MIB, mode).unwrap();
        let fork = |child: &dyn Fn() -> i32| {
            // SAFETY: the child makes calls and ends.
            let number = unsafe { libc::fork() };
            if number == 0 {
                // SAFETY: ends the child, without what the parent's threads have begun.
                unsafe { libc::_exit(child()) };
            }
            let mut status = 0;
            // SAFETY: writes the status.
            assert_eq!(unsafe { libc::waitpid(number, &raw mut status, 0) }, number);
            assert_eq!(status, 0);
            region.page_out(..).unwrap();
        };
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..30 {
                        let output = Command::new("/bin/echo").arg("said").output().unwrap();
                        assert_eq!(output.stdout, b"said\n");
                    }
                });
            }
            (0..30).for_each(|_| fork(&|| is_refused(&region)));
        });
        // Rust's library cannot make threads where another thread had its locks at the fork.
        (0..3).for_each(|_| fork(&|| is_refused(&region) + swap_in_child(mode)));
    });
}

/// The region is not in a child: the kernel says so, and the child lives.
fn is_refused(region: &Region) -> i32 {
    let zeroes = File::open("/dev/zero").unwrap();
    let at = region.base().as_ptr().cast();
    // SAFETY: the kernel refuses the address.
    i32::from(unsafe { libc::read(zeroes.as_raw_fd(), at, 100) } != -1)
}

fn swap_in_child(mode: FaultMode) -> i32 {
    let builder = Swap::builder().limit("8M").device(Device::zram()).sigbus().gate(Gate::Always);
    let swap = builder.build().unwrap();
    let mut own = swap.region_with(MIB, mode).unwrap();
    own.as_mut_slice().fill(9);
    leaves(&own, 0..MIB, 0);
    File::open("/dev/zero").unwrap().read_exact(own.as_mut_slice()).unwrap();
    i32::from(own.as_slice().iter().any(|byte| *byte != 0))
}

#[test]
fn the_gate_need_not_be_there() {
    if is_child("nobody") {
        let swap = Swap::builder().limit("8M").device(Device::zram()).gate(Gate::Never).build().unwrap();
        assert!(!swap.serves_system_calls());
        let operands = Operands::new(&swap, FaultMode::HandlerThreads);
        operands.leave();
        // SAFETY: within the region.
        assert_eq!(unsafe { libc::pipe(operands.at(0).cast()) }, -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EFAULT));
    } else {
        as_nobody("nobody");
    }
}
