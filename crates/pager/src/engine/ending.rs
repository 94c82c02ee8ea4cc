//! Ends that the process does not choose: the supervisor reports them, since the program has its
//! own descriptors.

use crate::engine::{Engine, link};
use crate::kernel::sys;
use core::sync::atomic::Ordering::Relaxed;
use folioswap_group::protocol::{Ending, Kind, Message, Note, OutOfMemory};
use rustix::io::Errno;

impl Engine {
    /// Ends the program, which could go on only with wrong bytes; the others of the group go on.
    pub(crate) fn end(&self, why: Ending, errno: Option<Errno>) -> ! {
        // A supervisor that is gone needs no message.
        let _ = self.say_end(why, errno);
        self.kill_program()
    }

    /// Tells the supervisor why this process is about to end.
    ///
    /// # Errors
    /// NOTCONN without a connection to it; else sendmsg(2)'s.
    pub(crate) fn say_end(&self, why: Ending, errno: Option<Errno>) -> Result<(), Errno> {
        let control = self.control_here().ok_or(Errno::NOTCONN)?;
        let errno = errno.map_or(0, |errno| errno.raw_os_error() as u64);
        link::send(control, &Message::new(Kind::Note, [Note::Ends as u64, why as u64, errno]), None)
    }

    /// Reports that the calling thread cannot go on and no other thread can in its stead: the group
    /// ends.
    pub(crate) fn report_failure(&self, why: Errno) {
        if self.control_here().is_some() {
            let why = why.raw_os_error() as u64;
            self.tell(Kind::OutOfMemory, [OutOfMemory::PagerFailed as u64, why, 0], None);
        }
    }

    /// The descriptor of the connection to the supervisor, where the calling thread is one of the
    /// pager's: the program's threads have other descriptors.
    fn control_here(&self) -> Option<i32> {
        let me = sys::gettid();
        let is_pager =
            [&self.threads.handler, &self.threads.evictor].iter().any(|thread| thread.load(Relaxed) == me);
        let control = self.descriptors.control.load(Relaxed);
        (is_pager && control >= 0).then_some(control)
    }
}

/// The number of times that the kernel is asked where pages depend on its answer.
const ATTEMPTS: u32 = 1000;

/// What `take` takes of the system's memory, without which pages would be lost: it is asked again
/// while the system has none, since that may pass. Where it does not, the process ends.
pub(crate) fn certainly_taken<T>(engine: &Engine, take: impl Fn() -> Option<T>) -> T {
    ask_again(|| take().ok_or(())).unwrap_or_else(|_| engine.end(Ending::NoTable, None))
}

/// The answer to a question on which a page's bytes depend. Without an answer no page would be safe
/// any more, so the process ends.
pub(crate) fn certainly<T>(engine: &Engine, ask: impl Fn() -> Result<T, Errno>) -> T {
    ask_again(ask).unwrap_or_else(|why| engine.end(Ending::NoAnswer, why))
}

/// Asks until there is an answer, [`ATTEMPTS`] times at most; the last error otherwise.
fn ask_again<T, E>(ask: impl Fn() -> Result<T, E>) -> Result<T, Option<E>> {
    let mut why = None;
    for _ in 0..ATTEMPTS {
        match ask() {
            Ok(answer) => return Ok(answer),
            Err(error) => why = Some(error),
        }
        rustix::thread::sched_yield();
    }
    Err(why)
}
