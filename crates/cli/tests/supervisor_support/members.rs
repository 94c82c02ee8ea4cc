//! Fake members: CMD is the test program itself, which plays the role that `FAKE_MEMBER` names and
//! speaks the control protocol as an agent does.

use super::{Run, kill, processes_of};
use folioswap_group::{
    decisions::Decisions,
    group::Group,
    protocol::{GROUP_VARIABLE, Kind, Message, Note, welcome},
    segment::Segment,
};
use folioswap_supervisor::ipc::wire::{self, Received};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
    mm::{MapFlags, ProtFlags, mmap},
    net::{
        AddressFamily, SocketFlags, SocketType, socketpair,
        sockopt::{Timeout, set_socket_timeout},
    },
};
use std::{
    process::Command,
    sync::{atomic::Ordering::Relaxed, mpsc},
    time::Duration,
};

/// The longest time that a role may take.
const PATIENCE: Duration = Duration::from_secs(40);

/// A fake member.
pub struct Member {
    pub socket: OwnedFd,
    pub group: Group<'static>,
    /// The descriptor of the decisions, as the welcome has it.
    pub decisions: OwnedFd,
    pub id: u64,
    /// The files of the shared devices, or links to them.
    pub devices: Vec<OwnedFd>,
    pub userfault: Option<OwnedFd>,
}

/// The bit of the built-in file: device 1, behind the compressed store.
pub const BUILT_IN_FILE: u64 = 1 << 1;

pub fn connect() -> OwnedFd {
    wire::connect_to(&std::env::var(GROUP_VARIABLE).expect("in a group")).expect("the group's socket")
}

pub fn answer(socket: &OwnedFd) -> Received {
    wire::receive(socket).expect("received").expect("an answer")
}

/// Maps decisions or segment of a group as a whole.
///
/// # Safety
/// `T` is one of both, and the descriptor that of its memory.
unsafe fn map<T>(fd: &OwnedFd, protection: ProtFlags) -> &'static T {
    // SAFETY: the memory is sealed and stays mapped; it consists of atomics.
    unsafe {
        &*mmap(std::ptr::null_mut(), size_of::<T>(), protection, MapFlags::SHARED, fd, 0)
            .expect("mmap")
            .cast::<T>()
    }
}

impl Member {
    pub fn join() -> Self {
        Self::welcomed(hello(0))
    }

    pub fn welcomed(socket: OwnedFd) -> Self {
        let got = answer(&socket);
        assert_eq!(got.message.kind(), Some(Kind::Welcome));
        let flags = got.message.words[1];
        let mut descriptors = got.descriptors.into_iter();
        let (decisions, segment) = (descriptors.next().expect("both"), descriptors.next().expect("both"));
        // SAFETY: in the order of the welcome.
        let group = unsafe {
            Group {
                decisions: map::<Decisions>(&decisions, ProtFlags::READ),
                segment: map::<Segment>(&segment, ProtFlags::READ | ProtFlags::WRITE),
            }
        };
        group.decisions.check().expect("of this version");
        let devices = descriptors.by_ref().take(got.message.words[2].count_ones() as usize).collect();
        let userfault =
            (flags & welcome::USERFAULT != 0).then(|| descriptors.next().expect("the userfaultfd"));
        Member { socket, group, decisions, id: got.message.words[0], devices, userfault }
    }

    pub fn say(&self, message: &Message, descriptors: &[&OwnedFd]) {
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        wire::send(&self.socket, message, &descriptors).expect("sent");
    }

    pub fn want(&self, count: u64) -> Vec<u32> {
        self.want_of(count, BUILT_IN_FILE)
    }

    /// Asks for clusters of these devices, one bit each.
    pub fn want_of(&self, count: u64, devices: u64) -> Vec<u32> {
        self.say(&Message::new(Kind::WantClusters, [count, devices, 0]), &[]);
        let got = answer(&self.socket).message;
        assert_eq!((got.kind(), got.words[0] as usize), (Some(Kind::Clusters), got.clusters().len()));
        got.clusters().to_vec()
    }

    /// Takes this much memory, and publishes it as an agent does.
    pub fn fill(&self, bytes: usize) -> Vec<u8> {
        let memory = vec![1; bytes];
        self.group.segment.members[self.id as usize].charge_bytes.store(bytes as u64, Relaxed);
        memory
    }

    pub fn owners(&self, cluster: u32) -> u32 {
        self.group.decisions.owners_of(cluster)
    }
}

/// Forks; the child runs its part and exits with 0, or with 1 when it panics.
pub fn fork(child: impl FnOnce()) -> i32 {
    // SAFETY: the child uses only what glibc makes safe after a fork (malloc) and system calls, and
    // ends with _exit.
    match unsafe { libc::fork() } {
        0 => {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
            // SAFETY: ends the process without the test harness's exit handlers.
            unsafe { libc::_exit(i32::from(result.is_err())) }
        }
        pid => pid,
    }
}

/// Forks; the child has given its rights up, if it had any, and belongs to nobody.
pub fn nobody(child: impl FnOnce()) -> i32 {
    fork(|| {
        become_nobody();
        child();
    })
}

/// Gives the rights of root up, and does nothing for another user.
pub fn become_nobody() {
    // SAFETY: changes the rights of this process alone.
    unsafe {
        if libc::geteuid() == 0 {
            assert_eq!((libc::setgid(65534), libc::setuid(65534)), (0, 0));
        }
    }
}

pub fn exit_status(pid: i32) -> i32 {
    let mut status = 0;
    // SAFETY: waits for a child of ours.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    status
}

pub fn pair() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("socketpair")
}

/// Sends a descriptor, or only a mark when there is none.
pub fn pass(socket: &OwnedFd, descriptor: Option<&OwnedFd>) {
    let descriptors: Vec<_> = descriptor.into_iter().map(AsFd::as_fd).collect();
    wire::send(socket, &Message::new(Kind::Note, [0; 3]), &descriptors).expect("passed");
}

pub fn take(socket: &OwnedFd) -> Option<OwnedFd> {
    answer(socket).descriptors.pop()
}

/// A userfaultfd of this process, with thread ids; `memory` is registered for missing pages.
pub fn userfault(memory: Option<u64>) -> OwnedFd {
    // SAFETY: a new userfaultfd, its API handshake, and the registration of a mapping of the
    // caller's.
    unsafe {
        // Without rights there is one for faults in user mode alone.
        let new = |mode: i32| libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | mode) as i32;
        let number = [0, 1].into_iter().map(new).find(|number| *number >= 0).expect("userfaultfd");
        let fd = OwnedFd::from_raw_fd(number);
        let mut api = [0xAA_u64, 1 << 8, 0];
        assert_eq!(libc::ioctl(number, 0xC018_AA3F, api.as_mut_ptr()), 0, "UFFDIO_API");
        if let Some(address) = memory {
            let mut register = [address, 4096_u64, 1, 0];
            assert_eq!(libc::ioctl(fd.as_raw_fd(), 0xC020_AA00, register.as_mut_ptr()), 0, "UFFDIO_REGISTER");
        }
        fd
    }
}

pub fn forked(token: u64) -> Message {
    Message::new(Kind::Forked, [token, 0, 0])
}

/// Connects and says this.
pub fn says(message: &Message) -> OwnedFd {
    let socket = connect();
    wire::send(&socket, message, &[]).expect("sent");
    socket
}

pub fn hello(token: u64) -> OwnedFd {
    says(&Message::new(Kind::Hello, [token, 0, 0]))
}

/// Kills a child of ours and waits for it.
pub fn end(pid: i32) {
    kill(pid, libc::SIGKILL);
    exit_status(pid);
}

/// The number of lines with these words.
pub fn lines(text: &str, words: &str) -> usize {
    text.lines().filter(|line| line.contains(words)).count()
}

/// Whether the supervisor closes this connection, or has something to say on it, within this time.
pub fn stirs(socket: &OwnedFd, milliseconds: i64) -> bool {
    let wait = Timespec { tv_sec: milliseconds / 1000, tv_nsec: milliseconds % 1000 * 1_000_000 };
    poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&wait)).expect("poll") > 0
}

pub fn assert_closed(socket: &OwnedFd) {
    assert!(stirs(socket, 3000), "the connection is closed");
    assert!(matches!(wire::receive(socket), Ok(None) | Err(_)), "and nothing is said");
}

/// Asks as `folioswap swapon --show` does; the connection stays open.
pub fn ask() -> OwnedFd {
    says(&Message::new(Kind::Query, [0; 3]))
}

/// The supervisor is alive and listens.
pub fn assert_answers() {
    let socket = ask();
    set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(3))).expect("set");
    assert_eq!(answer(&socket).message.kind(), Some(Kind::Answer));
}

pub fn note(note: Note, first: u64, second: u64) -> Message {
    Message::new(Kind::Note, [note as u64, first, second])
}

pub fn is_root() -> bool {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() == 0 }
}

/// Plays a role as CMD; returns the run, its status and its messages. A run that does not end is
/// killed after [`PATIENCE`].
pub fn play(role: &str, options: &[&str]) -> (Run, i32, String) {
    play_with(role, options, |_| {})
}

/// [`play`] with a command that `prepare` changes before it starts.
pub fn play_with(role: &str, options: &[&str], prepare: impl FnOnce(&mut Command)) -> (Run, i32, String) {
    let me = std::env::current_exe().expect("known");
    let mut run = Run::new(options, &[me.to_str().expect("text"), "fake_member", "--exact", "--nocapture"]);
    run.command.env("FAKE_MEMBER", role);
    prepare(&mut run.command);
    let ((ended, waits), mark) = (mpsc::channel::<()>(), run.mark.clone());
    let watchdog = std::thread::spawn(move || {
        if waits.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
            processes_of(&mark).into_iter().for_each(|pid| kill(pid as i32, libc::SIGKILL));
        }
    });
    let (status, out, err) = run.output();
    drop(ended);
    watchdog.join().expect("joined");
    (run, status, if status == 101 { format!("{out}{err}") } else { err })
}

pub fn succeeds(role: &str, options: &[&str]) -> Run {
    let (run, status, text) = play(role, options);
    assert_eq!(status, 0, "{role}: {text}");
    assert!(run.processes().is_empty());
    run
}
