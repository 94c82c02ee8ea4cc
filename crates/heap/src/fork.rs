//! A forked child gets a copy.
//!
//! A child has none of a region's memory: the kernel leaves it out, since nobody in the child could bring back what is swapped out. So whoever
//! forks calls, around fork(2): [`Sender::prepare`] before it, which holds the heap's lock; [`Sender::send`] in the parent; and
//! [`Receiver::receive`] in the child, which makes a swap of its own, maps the arenas where they were, and fills them with what the parent sends through
//! a socket. The parent waits meanwhile, so that the threads that wait for whoever forked cannot change anything; what other threads write
//! during the copy is in it or not, page by page.

use crate::arena::Arena;
use crate::extents::Contents;
use crate::heap::{Heap, State};
use folioswap::{Error, Swap};
use std::io::{self, Read, Write};
use std::mem::ManuallyDrop;
use std::os::unix::net::UnixStream;
use std::sync::MutexGuard;

/// What is sent at a time. Zeroes are not sent.
const CHUNK: usize = 1 << 20;

/// Why a child has no copy. It must not touch the pieces then.
#[derive(Debug)]
pub enum ForkError {
    /// The child could not make a swap, or map the arenas.
    Swap(Error),
    /// The parent ended, the socket failed, or something else lies where the arenas were.
    Copy(io::Error),
}

impl std::fmt::Display for ForkError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ForkError::Swap(error) => write!(formatter, "{error}"),
            ForkError::Copy(error) => {
                write!(formatter, "the copy of the parent's memory broke off: {error}")
            }
        }
    }
}

impl std::error::Error for ForkError {}

/// The parent's end, and, until fork(2) is done, the heap's lock.
pub struct Sender<'heap> {
    state: MutexGuard<'heap, State>,
    stream: UnixStream,
}

/// The child's end.
pub struct Receiver(UnixStream);

impl<'heap> Sender<'heap> {
    /// Before fork(2): nothing is allocated or freed until both are dropped or used, in either process.
    ///
    /// # Errors
    /// No socket could be made.
    pub fn prepare(heap: &'heap Heap) -> io::Result<(Self, Receiver)> {
        let (stream, theirs) = UnixStream::pair()?;
        Ok((Sender { state: heap.state(), stream }, Receiver(theirs)))
    }

    /// After fork(2), in the parent: sends all pieces, and waits until the child has them or has ended. Where fork(2) failed it returns at once.
    ///
    /// # Errors
    /// The child ended, or did not want it. SIGPIPE must be ignored, as Rust's and Python's start-up have it.
    pub fn send(mut self, receiver: Receiver) -> io::Result<()> {
        drop(receiver);
        let mut chunk = vec![0; CHUNK];
        for (&start, &length) in self.state.arenas.values().flat_map(|arena| &arena.pieces) {
            for at in (start..start + length).step_by(CHUNK) {
                let bytes = CHUNK.min(start + length - at);
                // SAFETY: a piece, alive as long as the lock is held; it may be written meanwhile by threads that do as they do at any fork.
                unsafe { std::ptr::copy_nonoverlapping(at as *const u8, chunk.as_mut_ptr(), bytes) };
                let is_zero = chunk[..bytes].iter().all(|&byte| byte == 0);
                self.stream.write_all(&[u8::from(!is_zero)])?;
                if !is_zero {
                    self.stream.write_all(&chunk[..bytes])?;
                }
            }
        }
        // The child says that it has everything, or closes.
        self.stream.read_exact(&mut [0])
    }
}

impl Receiver {
    /// After fork(2), in the child: the heap has arenas and a swap of its own from now on, and what the parent sends in them. `make` makes the
    /// swap.
    ///
    /// # Errors
    /// [`ForkError`]; the pieces are not there then, and the heap refuses to allocate.
    pub fn receive(
        mut self,
        sender: Sender<'_>,
        make: impl FnOnce() -> Result<Swap, Error>,
    ) -> Result<(), ForkError> {
        let Sender { mut state, stream } = sender;
        drop(stream);
        for (&start, arena) in &state.arenas {
            reserve(start, arena.bytes).map_err(ForkError::Copy)?;
        }
        let swap = make().map_err(ForkError::Swap)?;
        let mut arenas = Vec::new();
        for (&start, arena) in &state.arenas {
            // SAFETY: reserved for it just now.
            let region = unsafe { swap.region_at(start, arena.bytes) };
            arenas.push(Arena::new(region.map_err(ForkError::Swap)?));
        }
        for mut arena in arenas {
            let start = arena.start();
            let Some(theirs) = state.arenas.get_mut(&start) else { continue };
            arena.pieces = std::mem::take(&mut theirs.pieces);
            arena.free = std::mem::take(&mut theirs.free);
            for (free, length) in arena.free.drain(Contents::Left) {
                arena.free.insert(free, length, Contents::Zero);
            }
            // What the parent's region and engine are is nothing to us: neither memory nor threads of them are here.
            let _ = ManuallyDrop::new(state.arenas.insert(start, arena));
        }
        let _ = ManuallyDrop::new(std::mem::replace(&mut state.swap, swap));
        if let Err(error) = fill(&state, &mut self.0) {
            for arena in state.arenas.values() {
                // Who touches what did not come gets SIGSEGV rather than zeroes.
                // SAFETY: an arena of ours.
                unsafe { libc::mprotect(arena.start() as *mut libc::c_void, arena.bytes, libc::PROT_NONE) };
            }
            return Err(ForkError::Copy(error));
        }
        state.process = std::process::id();
        Ok(())
    }
}

/// Takes the addresses, without access, before anything else of this process gets them.
fn reserve(start: usize, bytes: usize) -> io::Result<()> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: replaces nothing.
    let mapped = unsafe { libc::mmap(start as *mut libc::c_void, bytes, libc::PROT_NONE, flags, -1, 0) };
    if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Fills the pieces with what comes, and says that it came.
fn fill(state: &State, stream: &mut UnixStream) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    for (&start, &length) in state.arenas.values().flat_map(|arena| &arena.pieces) {
        for at in (start..start + length).step_by(CHUNK) {
            let bytes = CHUNK.min(start + length - at);
            let mut has_data = [0];
            stream.read_exact(&mut has_data)?;
            if has_data[0] != 0 {
                stream.read_exact(&mut chunk[..bytes])?;
                // SAFETY: a piece of ours, which nobody in this process uses before fork's caller goes on.
                unsafe { std::ptr::copy_nonoverlapping(chunk.as_ptr(), at as *mut u8, bytes) };
            }
        }
    }
    stream.write_all(&[0])
}
