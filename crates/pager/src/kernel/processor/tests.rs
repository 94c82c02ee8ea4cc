use super::*;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use linux_raw_sys::general as raw;
use rustix::io::Errno;

#[test]
fn calls_pass_six_arguments_and_give_errors_back() {
    // SAFETY: no arguments.
    let process = unsafe { syscall(raw::__NR_getpid, [0; 6]) };
    assert_eq!(process, Ok(std::process::id() as usize));
    // SAFETY: the descriptor is none.
    assert_eq!(unsafe { syscall(raw::__NR_close, [usize::MAX, 0, 0, 0, 0, 0]) }, Err(Errno::BADF));
    let flags = (raw::MAP_PRIVATE | raw::MAP_ANONYMOUS) as usize;
    // SAFETY: a new mapping. It comes only if the fourth argument arrives as the flags, and the
    // kernel looks at the sixth, an offset that is no multiple of a page, first.
    let unaligned = unsafe { syscall(raw::__NR_mmap, [0, 4096, 0, flags, usize::MAX, 1]) };
    assert_eq!(unaligned, Err(Errno::INVAL));
}

/// The C library keeps the thread's number in its descriptor, where the kernel clears it at the
/// thread's end.
#[test]
fn the_control_block_holds_the_threads_number() {
    let check = || {
        let (block, certain) = control_block();
        let word = crate::kernel::process::exit_word().unwrap();
        assert!(block.contains(&word), "{word:#x} is not in {block:x?}");
        assert!((certain[0]..certain[1]).contains(&word), "{word:#x} is not within {certain:x?}");
        let around = thread_data(4096);
        assert!(around.start <= block.start && block.end <= around.end);
    };
    check();
    std::thread::spawn(check).join().unwrap();
}

/// Thread-local variables lie on the side of the thread pointer that `thread_data` takes for it.
#[test]
fn thread_local_data_lie_where_they_are_kept_resident() {
    std::thread_local! { static HERE: u64 = const { 7 }; }
    let address = HERE.with(|here| core::ptr::from_ref(here) as usize);
    assert!(thread_data(64 << 10).contains(&address));
}

#[test]
fn a_touch_changes_nothing_and_loses_no_write() {
    const TIMES: usize = 200_000;
    let word = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let toucher = scope.spawn(|| {
            for _ in 0..TIMES {
                // SAFETY: the word is there, and atomic.
                unsafe { touch_byte(core::ptr::from_ref(&word) as usize) };
                // SAFETY: as above.
                unsafe { read_byte(core::ptr::from_ref(&word) as usize) };
            }
        });
        for _ in 0..TIMES {
            word.fetch_add(1, Relaxed);
        }
        toucher.join().unwrap();
    });
    assert_eq!(word.load(Relaxed), TIMES);
}
