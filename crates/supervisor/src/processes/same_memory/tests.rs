use super::*;
use std::ptr::null_mut;

/// A child that sleeps until it is killed; with the memory of this process, if `flags` say so.
struct Child {
    pid: i32,
    // It runs there.
    _stack: Vec<u8>,
}

extern "C" fn sleep(_: *mut libc::c_void) -> libc::c_int {
    loop {
        // SAFETY: waits for a signal.
        unsafe { libc::syscall(libc::SYS_pause) };
    }
}

impl Child {
    fn with(flags: libc::c_int) -> Child {
        let mut stack = vec![0_u8; 64 << 10];
        let top = stack.as_mut_ptr_range().end;
        // SAFETY: the child makes one system call, on a stack of its own.
        let pid = unsafe { libc::clone(sleep, top.cast(), flags | libc::SIGCHLD, null_mut()) };
        assert!(pid > 0, "{}", std::io::Error::last_os_error());
        Child { pid, _stack: stack }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: a child of ours, which nobody else waits for.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, null_mut(), 0);
        }
    }
}

/// Both ways tell a process with our memory from a copy of it, and the second leaves no trace.
#[test]
fn a_pager_is_told_from_a_copy() {
    let us = std::process::id();
    let adjusted = || fs::read_to_string("/proc/self/oom_score_adj").expect("a value");
    let before = adjusted();
    let (pager, copy) = (Child::with(libc::CLONE_VM), Child::with(0));
    assert_eq!(share_memory(pager.pid as u32, us), Some(true));
    assert_eq!(share_memory(copy.pid as u32, us), Some(false));
    assert_eq!(change_together(pager.pid as u32, us), Some(true));
    assert_eq!(change_together(copy.pid as u32, us), Some(false));
    assert!(have_same_mappings(pager.pid as u32, us));
    assert_eq!(adjusted(), before);
    assert_eq!(proof(pager.pid as u32, us), Proof::Same);
    assert_eq!(proof(copy.pid as u32, us), Proof::Other);
}

#[test]
fn a_process_that_has_ended_shares_nothing() {
    let gone = Child::with(0);
    let (pid, us) = (gone.pid as u32, std::process::id());
    drop(gone);
    assert_eq!((share_memory(pid, us), change_together(pid, us)), (None, None));
    assert!(!shares_memory_with_its_parent(pid));
    assert_eq!(proof(pid, us), Proof::Other);
}
