//! A local file in the place of an export. Where its pages are to be sealed, members reach it as
//! they reach an export, so that no member holds the key.
//!
//! A few threads serve it, each with one request at a time in a buffer of its own, as `O_DIRECT`
//! demands.

use crate::buffers;
use crate::client::{Done, Operation};
use crate::error::RequestError;
use crate::store::PAGES_MAX;
use crate::wire::Command;
use folioswap_group::units::PAGE_SIZE;
use rustix::fd::OwnedFd;
use rustix::io::{Errno, pread, pwrite};
use std::io;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;

/// Requests under way at a time.
const THREADS: usize = 4;

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Aligned([u8; PAGE_SIZE]);

type Requests = mpsc::Sender<(Operation, Done)>;

/// A file with the threads that serve it. Dropping it ends the threads after the requests made so
/// far.
pub struct FileServer {
    requests: Mutex<Requests>,
}

impl FileServer {
    /// Serves a file that is open for reading and writing.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(file: OwnedFd) -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel::<(Operation, Done)>();
        let (file, receiver) = (Arc::new(file), Arc::new(Mutex::new(receiver)));
        for _ in 0..THREADS {
            let (file, receiver) = (Arc::clone(&file), Arc::clone(&receiver));
            let serve = move || {
                let mut buffer = vec![Aligned([0; PAGE_SIZE]); PAGES_MAX];
                loop {
                    let next = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok((operation, done)) = next else { return };
                    done(carry_out(&file, buffer.as_mut_slice(), operation));
                }
            };
            thread::Builder::new().name("swap-file".into()).stack_size(128 << 10).spawn(serve)?;
        }
        Ok(FileServer { requests: Mutex::new(sender) })
    }

    /// Makes a request: reading or writing of whole pages, [`PAGES_MAX`] at most. Does not wait.
    pub fn submit(&self, operation: Operation, done: Done) {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(mpsc::SendError((_, done))) = requests.send((operation, done)) {
            done(Err(RequestError::Stopped));
        }
    }
}

fn carry_out(file: &OwnedFd, buffer: &mut [Aligned], operation: Operation) -> Result<Vec<u8>, RequestError> {
    let Operation { command, offset, length, data, .. } = operation;
    // SAFETY: an aligned page has as many bytes, with none between pages; bytes are valid in both
    // types whatever their values.
    let buffer =
        unsafe { std::slice::from_raw_parts_mut(buffer.as_mut_ptr().cast::<u8>(), size_of_val(buffer)) };
    let Some(buffer) = buffer.get_mut(..length as usize) else {
        return Err(RequestError::Range { offset, length: length.into() });
    };
    let failed = |errno: Errno| RequestError::Server(errno.raw_os_error() as u32);
    match command {
        Command::Read => {
            transfer(buffer.len(), |done| pread(file, &mut buffer[done..], offset + done as u64))
                .map_err(failed)?;
            let mut pages = buffers::take(buffer.len());
            pages.copy_from_slice(buffer);
            Ok(pages)
        }
        Command::Write if data.len() == buffer.len() => {
            buffer.copy_from_slice(&data);
            buffers::give_back(data);
            transfer(buffer.len(), |done| pwrite(file, &buffer[done..], offset + done as u64))
                .map_err(failed)?;
            Ok(Vec::new())
        }
        _ => Err(RequestError::Unsupported),
    }
}

/// Repeats `step` until all bytes are transferred. After a partial transfer it continues at the
/// start of the page in which that ended.
fn transfer(bytes: usize, mut step: impl FnMut(usize) -> Result<usize, Errno>) -> Result<(), Errno> {
    let mut done = 0;
    while done < bytes {
        match step(done) {
            Ok(count) if count >= PAGE_SIZE => done += count - count % PAGE_SIZE,
            // The file ends there, or no more can be written.
            Ok(_) => return Err(Errno::IO),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
