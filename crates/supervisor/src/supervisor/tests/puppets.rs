//! Processes that were made to be named by the supervisor, and ended by it. A puppet does nothing
//! but connect when it is told to, and ends with the test; what it then says is said by the test,
//! which has its sockets.

use crate::{ipc::wire, processes::descriptors};
use folioswap_group::protocol::{Kind, Message};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    mm::{MapFlags, ProtFlags, mmap_anonymous},
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
    process::{Pid, PidfdFlags, Signal, Uid, pidfd_open, pidfd_send_signal},
};

/// What is special about a puppet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Nothing.
    Plain,
    /// It belongs to nobody, if we may change that.
    Nobody,
    /// It waits for a page of its memory, for ever.
    Faulting,
}

pub struct Puppet {
    pub pid: u32,
    pub user: Uid,
    /// A pidfd.
    pub process: OwnedFd,
    control: OwnedFd,
    /// A userfaultfd of its memory, where the system gives one, and one without a handshake.
    userfaults: Vec<OwnedFd>,
}

/// All puppets: one that behaves, a parent and its child, one of another user, one that faults.
pub struct Puppets {
    pub honest: Puppet,
    pub parent: Puppet,
    pub child: Puppet,
    pub nobody: Puppet,
    pub faulting: Puppet,
}

impl Puppets {
    pub fn new() -> Self {
        let (parent, child) = family();
        Puppets {
            honest: one(Part::Plain),
            parent,
            child,
            nobody: one(Part::Nobody),
            faulting: one(Part::Faulting),
        }
    }

    /// One of those that may misbehave.
    pub fn some(&self, number: usize) -> &Puppet {
        [&self.parent, &self.child, &self.nobody][number % 3]
    }

    fn all(&self) -> [&Puppet; 5] {
        [&self.honest, &self.parent, &self.child, &self.nobody, &self.faulting]
    }

    /// Userfaultfds of the memory of all but the one that behaves, which outlives the others.
    pub fn userfaults(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let all = [&self.parent, &self.child, &self.nobody, &self.faulting];
        all.into_iter().flat_map(|puppet| puppet.userfaults.iter().map(AsFd::as_fd))
    }

    /// Makes new ones for those that were ended. The one that behaves must live.
    pub fn mend(&mut self) {
        let mut processes = self.all().map(|puppet| PollFd::new(&puppet.process, PollFlags::IN));
        if poll(&mut processes, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(0) {
            return;
        }
        assert!(!self.honest.has_ended(), "nobody had it ended");
        if self.parent.has_ended() || self.child.has_ended() {
            self.parent.end();
            self.child.end();
            (self.parent, self.child) = family();
        }
        for (puppet, part) in [(&mut self.nobody, Part::Nobody), (&mut self.faulting, Part::Faulting)] {
            if puppet.has_ended() {
                *puppet = one(part);
            }
        }
        wait_for_children();
    }

    /// Ends all of them; their memory is gone then.
    pub fn end(&self) {
        self.all().into_iter().for_each(Puppet::end);
        wait_for_children();
    }
}

impl Puppet {
    fn has_ended(&self) -> bool {
        self.waits(Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
    }

    fn waits(&self, timeout: Option<&Timespec>) -> bool {
        poll(&mut [PollFd::new(&self.process, PollFlags::IN)], timeout).is_ok_and(|ready| ready > 0)
    }

    pub fn end(&self) {
        // A puppet that has ended needs no signal.
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
        self.waits(Some(&Timespec { tv_sec: 10, tv_nsec: 0 }));
    }

    /// Has the puppet connect to a group; `None` when it has ended.
    pub fn connect(&self, group: &str) -> Option<OwnedFd> {
        rustix::io::write(&self.control, group.as_bytes()).ok()?;
        wire::receive(&self.control).ok()??.descriptors.pop()
    }
}

/// Waits for the puppets that have ended. This process has no other children.
fn wait_for_children() {
    // SAFETY: no status is wanted.
    while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } > 0 {}
}

fn pair() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("sockets")
}

/// Forks; the child plays its part and never returns.
fn fork(child: impl FnOnce()) {
    // SAFETY: the child allocates nothing, makes system calls, and ends with _exit.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            child();
            // SAFETY: ends the process without the test harness's exit handlers.
            unsafe { libc::_exit(0) }
        }
        _ => {}
    }
}

fn one(part: Part) -> Puppet {
    let (ours, theirs) = pair();
    fork(|| play(&theirs, part));
    drop(theirs);
    introduced(ours)
}

/// A puppet and its child.
fn family() -> (Puppet, Puppet) {
    let (parent, child) = (pair(), pair());
    fork(|| {
        // SAFETY: children that end need nobody to wait for them.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
        fork(|| play(&child.1, Part::Plain));
        play(&parent.1, Part::Plain);
    });
    drop((parent.1, child.1));
    (introduced(parent.0), introduced(child.0))
}

/// The puppet at the other end, from its first message.
fn introduced(control: OwnedFd) -> Puppet {
    let first = wire::receive(&control).expect("received").expect("a puppet");
    let [pid, user, _] = first.message.words;
    let process =
        pidfd_open(Pid::from_raw(pid as i32).expect("a number"), PidfdFlags::empty()).expect("alive");
    Puppet {
        pid: pid as u32,
        user: Uid::from_raw(user as u32),
        process,
        control,
        userfaults: first.descriptors,
    }
}

/// The life of a puppet.
fn play(control: &OwnedFd, part: Part) {
    descriptors::close_all_but(&[control.as_fd()]);
    if part == Part::Nobody {
        // SAFETY: gives rights of this process up. Without root it stays as it is.
        unsafe { (libc::setgid(65534), libc::setuid(65534)) };
    }
    // SAFETY: a new anonymous mapping.
    let page = unsafe { mmap_anonymous(std::ptr::null_mut(), 4096, ProtFlags::READ, MapFlags::PRIVATE) };
    let page = page.unwrap_or(std::ptr::null_mut());
    let userfault = userfault(page as u64);
    let unready = new_userfault();
    let (first, second) = (userfault.as_ref(), unready.as_ref());
    // SAFETY: no arguments.
    let user = unsafe { libc::geteuid() };
    let message = Message::new(Kind::Note, [std::process::id().into(), user.into(), 0]);
    let _ = match (first, second) {
        (Some(first), Some(second)) => wire::send(control, &message, &[first.as_fd(), second.as_fd()]),
        _ => wire::send(control, &message, &[]),
    };
    if part == Part::Faulting && first.is_some() {
        // SAFETY: a setting of this process, which would outlive the test. Then it reads the
        // mapping, and nobody serves the fault.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            page.cast::<u8>().read_volatile();
        }
    }
    let mut name = [0; 64];
    while let Ok(length @ 1..) = rustix::io::read(control, &mut name) {
        let connected =
            std::str::from_utf8(&name[..length]).ok().and_then(|name| wire::connect_to(name).ok());
        let sent = match &connected {
            Some(socket) => wire::send(control, &message, &[socket.as_fd()]),
            None => wire::send(control, &message, &[]),
        };
        if sent.is_err() {
            return;
        }
    }
}

/// A userfaultfd of this process with its handshake, and with this page registered.
fn userfault(page: u64) -> Option<OwnedFd> {
    let fd = new_userfault()?;
    // Thread ids come with faults.
    let (mut api, mut register) = ([0xAA_u64, 1 << 8, 0], [page, 4096, 1, 0]);
    // SAFETY: the handshake, and the registration of our own page; both write to local words.
    unsafe {
        libc::ioctl(fd.as_raw_fd(), 0xC018_AA3F, api.as_mut_ptr());
        libc::ioctl(fd.as_raw_fd(), 0xC020_AA00, register.as_mut_ptr());
    }
    Some(fd)
}

fn new_userfault() -> Option<OwnedFd> {
    const USER_MODE_ONLY: i32 = 1;
    // SAFETY: a new userfaultfd has no other owner.
    [0, USER_MODE_ONLY].into_iter().find_map(|mode| unsafe {
        let number = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | mode) as i32;
        (number >= 0).then(|| OwnedFd::from_raw_fd(number))
    })
}
