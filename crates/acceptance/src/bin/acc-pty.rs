//! Runs a program on a terminal of its own, as its foreground job. SIGUSR1 types Ctrl-C there.
//!
//! `acc-pty PROGRAM ARGUMENTS...` prints the program's output on standard output and passes its
//! status on.

use std::ffi::CString;
use std::io::{self, Read, Write};
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

static MASTER: AtomicI32 = AtomicI32::new(-1);

extern "C" fn type_interrupt(_signal: i32) {
    // SAFETY: write(2) is async-signal-safe.
    unsafe { libc::write(MASTER.load(Relaxed), b"\x03".as_ptr().cast(), 1) };
}

fn main() {
    let words: Vec<CString> =
        std::env::args().skip(1).map(|word| CString::new(word).expect("no zero byte")).collect();
    assert!(!words.is_empty(), "acc-pty PROGRAM ARGUMENTS...");
    let mut pointers: Vec<_> = words.iter().map(|word| word.as_ptr()).collect();
    pointers.push(std::ptr::null());
    let mut master = -1;
    // SAFETY: single-threaded; the child only execs.
    let child = unsafe {
        let child = libc::forkpty(&raw mut master, std::ptr::null_mut(), std::ptr::null(), std::ptr::null());
        if child == 0 {
            libc::execvp(pointers[0], pointers.as_ptr());
            libc::_exit(127);
        }
        child
    };
    assert!(child > 0, "forkpty: {}", io::Error::last_os_error());
    MASTER.store(master, Relaxed);
    let handler: extern "C" fn(i32) = type_interrupt;
    // SAFETY: the handler is async-signal-safe.
    unsafe { libc::signal(libc::SIGUSR1, handler as libc::sighandler_t) };
    // SAFETY: ours alone.
    let mut terminal = unsafe { std::fs::File::from_raw_fd(master) };
    let mut buffer = [0; 4096];
    loop {
        match terminal.read(&mut buffer) {
            // EIO: no process has the other side open any more.
            Ok(0) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
            Ok(length) => {
                io::stdout().write_all(&buffer[..length]).expect("stdout");
                io::stdout().flush().expect("stdout");
            }
        }
    }
    let mut status = 0;
    // SAFETY: our own child.
    while unsafe { libc::waitpid(child, &raw mut status, 0) } != child {
        assert_eq!(io::Error::last_os_error().kind(), io::ErrorKind::Interrupted);
    }
    std::process::exit(if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        128 + libc::WTERMSIG(status)
    });
}
