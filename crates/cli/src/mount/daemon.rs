//! The process that serves a mount: its start, and its end by signals.

use super::{
    MountCommandError,
    devices::MountDevices,
    mounts,
    umount::{InUse, take_down},
};
use folioswap_supervisor::devices::networks::Networks;
use folioswap_tmpfs::{MountOptions, Mounted};
use sd_notify::NotifyState;
use std::{
    fs::{self, File},
    io::{self, Read, Write},
    mem::MaybeUninit,
    os::fd::OwnedFd,
    path::Path,
    process,
};

/// The option of prctl(2) for a process whose work helps to free memory: its allocations do not
/// wait for file systems, which may be our own.
const PR_SET_IO_FLUSHER: i32 = 57;
/// Makes the daemon one of the last processes that the kernel kills for want of memory: all
/// contents of the mount go with it, and it keeps a limit anyway.
const OOM_SCORE_ADJ: &str = "-500";

/// Mounts and serves until it is unmounted.
///
/// # Errors
/// [`MountCommandError`]; nothing is mounted then.
pub fn foreground(options: MountOptions, devices: MountDevices) -> Result<(), MountCommandError> {
    let ending = Ending::new(EndingSignals::Terminal);
    prepare();
    let directory = options.directory.clone();
    let (mounted, _networks) = start(options, devices)?;
    // For a unit of Type=notify; without one there is nobody to tell.
    let status = format!("mounted on {}", directory.display());
    let _ = sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(&status)]);
    let ended = serve(mounted, ending, &directory);
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    ended
}

/// Mounts. The returned networks serve the network devices of the mount as long as they live.
fn start(options: MountOptions, devices: MountDevices) -> Result<(Mounted, Networks), MountCommandError> {
    let (devices, networks) = devices.start()?;
    Ok((folioswap_tmpfs::mount(MountOptions { devices, ..options })?, networks))
}

/// Starts a process that mounts and serves; returns when the mount is there.
///
/// # Errors
/// [`MountCommandError`], also of the child; nothing is mounted then.
pub fn background(options: MountOptions, devices: MountDevices) -> Result<(), MountCommandError> {
    let failed = |doing| move |source| MountCommandError::System { doing, source };
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|error| failed("making a pipe")(error.into()))?;
    // SAFETY: this process has one thread so far, so the child may do anything.
    match unsafe { libc::fork() } {
        -1 => Err(failed("fork")(io::Error::last_os_error())),
        0 => {
            drop(reader);
            child(options, devices, File::from(writer))
        }
        _ => {
            drop(writer);
            let mut said = Vec::new();
            File::from(reader).read_to_end(&mut said).map_err(failed("reading from the daemon"))?;
            match said.split_first() {
                None => Err(MountCommandError::DaemonDied),
                Some((&READY, _)) => Ok(()),
                Some((_, text)) => Err(MountCommandError::Daemon(String::from_utf8_lossy(text).into_owned())),
            }
        }
    }
}

/// The first byte of the child's answer: [`READY`] when the mount is there, or [`FAILED`] before a
/// message.
const READY: u8 = 0;
const FAILED: u8 = 1;

fn child(options: MountOptions, devices: MountDevices, mut parent: File) -> ! {
    // A session of its own has no terminal and gets no signals meant for our caller's processes.
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir("/");
    let ending = Ending::new(EndingSignals::Daemon);
    prepare();
    let directory = options.directory.clone();
    let (mounted, _networks) = match start(options, devices) {
        Ok(started) => started,
        Err(error) => {
            let mut said = vec![FAILED];
            said.extend(error.to_string().into_bytes());
            let _ = parent.write_all(&said);
            process::exit(1);
        }
    };
    silence();
    let _ = parent.write_all(&[READY]);
    drop(parent);
    let status = i32::from(serve(mounted, ending, &directory).is_err());
    process::exit(status);
}

/// Makes standard input, output and error `/dev/null`. They belong to our caller, which may wait
/// for their end.
fn silence() {
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        let null: OwnedFd = null.into();
        for result in [
            rustix::stdio::dup2_stdin(&null),
            rustix::stdio::dup2_stdout(&null),
            rustix::stdio::dup2_stderr(&null),
        ] {
            let _ = result;
        }
    }
}

/// Prepares the process for work that other processes depend on. No step is needed for correctness,
/// and without root some steps are refused.
fn prepare() {
    // A thread that panics would leave its requests without an answer; an abort is seen by
    // everyone.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        process::abort();
    }));
    // SAFETY: sets a flag of this thread, which the threads that it starts inherit.
    unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) };
    let _ = fs::write("/proc/self/oom_score_adj", OOM_SCORE_ADJ);
}

/// Waits for the end of the mount, which the signals of `ending` bring about.
fn serve(mounted: Mounted, ending: Ending, directory: &Path) -> Result<(), MountCommandError> {
    let directory = directory.to_owned();
    let number = mounted.number();
    let signals = std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        ending.wait();
        // Another mount that lies there by now is not ours to take down.
        let is_there =
            || number.is_some() && mounts::ours_at(&directory).is_some_and(|top| top.number == number);
        if is_there() && take_down(&directory, InUse::Refused).is_err() && is_there() {
            // Processes with open files keep them, no other process gets in, and the mount ends
            // with the last file.
            let _ = take_down(&directory, InUse::Detached);
        }
        // A second signal means that the user does not want to wait.
        ending.wait();
        process::exit(1);
    });
    let failed = |doing| move |source| MountCommandError::System { doing, source };
    signals.map_err(failed("starting a thread"))?;
    mounted.wait().map_err(failed("the connection with the kernel"))
}

/// The signals that end a mount: all threads block them, and one thread waits for them.
struct Ending(libc::sigset_t);

/// The set of signals that end a mount.
enum EndingSignals {
    /// The signals of a process with a terminal, whose end counts too.
    Terminal,
    /// The signals of a daemon.
    Daemon,
}

impl Ending {
    /// Blocks the signals. Must be called before any thread is started.
    fn new(which: EndingSignals) -> Self {
        let signals: &[i32] = match which {
            EndingSignals::Terminal => &[libc::SIGTERM, libc::SIGINT, libc::SIGHUP],
            EndingSignals::Daemon => &[libc::SIGTERM, libc::SIGINT],
        };
        let mut set = MaybeUninit::uninit();
        // SAFETY: the first call initialises the set; the numbers are valid; the mask is that of
        // this thread.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for &signal in signals {
                libc::sigaddset(set.as_mut_ptr(), signal);
                // `nohup`, or a shell that starts a job in the background, leaves the signal
                // ignored; then it could not be waited for.
                libc::signal(signal, libc::SIG_DFL);
            }
            libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            Ending(set.assume_init())
        }
    }

    fn wait(&self) {
        let mut signal = 0;
        // SAFETY: the set is initialised, and the number is written to `signal`. The call fails for
        // no set of ours.
        while unsafe { libc::sigwait(&raw const self.0, &raw mut signal) } != 0 {}
    }
}
