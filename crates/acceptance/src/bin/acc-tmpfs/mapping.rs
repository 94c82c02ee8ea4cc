//! Mappings of whole files.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// A shared mapping of a whole file.
pub struct Mapping {
    start: *mut u8,
    pub length: usize,
}

impl Mapping {
    pub fn new(file: &File, length: usize, flags: i32) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            Err(io::Error::last_os_error())
        } else {
            Ok(Mapping { start: start.cast(), length })
        }
    }
    pub fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.length);
        // SAFETY: within the mapping; nobody holds a reference into it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.add(at), bytes.len()) };
    }
    pub fn read(&self, at: usize, length: usize) -> Vec<u8> {
        assert!(at + length <= self.length);
        let mut bytes = vec![0; length];
        // SAFETY: within the mapping; the target is our own.
        unsafe { std::ptr::copy_nonoverlapping(self.start.add(at), bytes.as_mut_ptr(), length) };
        bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it is ours.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}
