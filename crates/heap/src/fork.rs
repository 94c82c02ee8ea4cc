//! The copy that a forked child gets.
//!
//! A child has none of a region's memory. The kernel leaves it out, since no thread of the child
//! could bring swapped-out pages back. So the caller of fork(2) calls [`Sender::prepare`] before
//! it, which holds the heap's lock; [`Sender::send`] in the parent; and [`Receiver::receive`] in
//! the child, which makes a swap of its own, maps the arenas at their addresses, and fills them
//! with the bytes that the parent sends through a socket. The parent waits meanwhile, so threads
//! that wait for the forking thread cannot change the pieces. Writes of other threads during the
//! copy are in it or not, page by page.

use crate::arena::Arena;
use crate::extents::Contents;
use crate::heap::{Heap, State};
use folioswap::{Error, Swap};
use std::io::{self, Read, Write};
use std::mem::ManuallyDrop;
use std::os::unix::net::UnixStream;
use std::sync::MutexGuard;

/// The bytes sent at a time. A chunk of zeroes is not sent.
const CHUNK: usize = 1 << 20;

/// Why a child has no copy. It must not touch the pieces then.
#[derive(Debug)]
pub enum ForkError {
    /// The child could not make a swap, or map the arenas.
    Swap(Error),
    /// The parent ended, the socket failed, or another mapping lies where the arenas were.
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

/// The parent's end of the socket, and, until fork(2) has returned, the heap's lock.
pub struct Sender<'heap> {
    state: MutexGuard<'heap, State>,
    stream: UnixStream,
}

/// The child's end of the socket.
pub struct Receiver(UnixStream);

impl<'heap> Sender<'heap> {
    /// Call this before fork(2). In both processes no piece is allocated or freed until both ends
    /// are dropped or used.
    ///
    /// # Errors
    /// No socket could be made.
    pub fn prepare(heap: &'heap Heap) -> io::Result<(Self, Receiver)> {
        let (stream, theirs) = UnixStream::pair()?;
        Ok((Sender { state: heap.state(), stream }, Receiver(theirs)))
    }

    /// Call this after fork(2), in the parent. Sends all pieces, and waits until the child has them
    /// or has ended. Returns at once where fork(2) failed.
    ///
    /// # Errors
    /// The child ended, or did not want the copy. SIGPIPE must be ignored, as the start-up code of
    /// Rust and Python does.
    pub fn send(mut self, receiver: Receiver) -> io::Result<()> {
        drop(receiver);
        let mut chunk = vec![0; CHUNK];
        for (&start, &length) in self.state.arenas.values().flat_map(|arena| &arena.pieces) {
            for at in (start..start + length).step_by(CHUNK) {
                let bytes = CHUNK.min(start + length - at);
                // SAFETY: the piece lives as long as the lock is held. Other threads may write to
                // it meanwhile, as at any fork.
                unsafe { std::ptr::copy_nonoverlapping(at as *const u8, chunk.as_mut_ptr(), bytes) };
                let is_zero = chunk[..bytes].iter().all(|&byte| byte == 0);
                self.stream.write_all(&[u8::from(!is_zero)])?;
                if !is_zero {
                    self.stream.write_all(&chunk[..bytes])?;
                }
            }
        }
        // The child sends a byte when it has everything, or closes the socket.
        self.stream.read_exact(&mut [0])
    }
}

impl Receiver {
    /// Call this after fork(2), in the child. The heap then has a swap of its own, made by `make`,
    /// and arenas of its own, filled with the bytes that the parent sends.
    ///
    /// # Errors
    /// [`ForkError`]; the pieces are then missing, and the heap refuses to allocate.
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
            // SAFETY: the address range was reserved for the region just now.
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
            // The parent's region and engine have neither memory nor threads here, so they are not
            // dropped.
            let _ = ManuallyDrop::new(state.arenas.insert(start, arena));
        }
        let _ = ManuallyDrop::new(std::mem::replace(&mut state.swap, swap));
        if let Err(error) = fill(&state, &mut self.0) {
            for arena in state.arenas.values() {
                // A touch of a page that did not arrive is a SIGSEGV rather than a zero.
                // SAFETY: the arena is ours.
                unsafe { libc::mprotect(arena.start() as *mut libc::c_void, arena.bytes, libc::PROT_NONE) };
            }
            return Err(ForkError::Copy(error));
        }
        state.process = std::process::id();
        Ok(())
    }
}

/// Reserves the addresses, without access, before another mapping of this process takes them.
fn reserve(start: usize, bytes: usize) -> io::Result<()> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: the flags make the call fail rather than replace a mapping.
    let mapped = unsafe { libc::mmap(start as *mut libc::c_void, bytes, libc::PROT_NONE, flags, -1, 0) };
    if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Fills the pieces with the bytes that arrive, and confirms their arrival.
fn fill(state: &State, stream: &mut UnixStream) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    for (&start, &length) in state.arenas.values().flat_map(|arena| &arena.pieces) {
        for at in (start..start + length).step_by(CHUNK) {
            let bytes = CHUNK.min(start + length - at);
            let mut has_data = [0];
            stream.read_exact(&mut has_data)?;
            if has_data[0] != 0 {
                stream.read_exact(&mut chunk[..bytes])?;
                // SAFETY: the piece is ours, and no thread of this process uses it before the
                // caller of fork(2) goes on.
                unsafe { std::ptr::copy_nonoverlapping(chunk.as_ptr(), at as *mut u8, bytes) };
            }
        }
    }
    stream.write_all(&[0])
}
