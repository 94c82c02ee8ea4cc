//! The process that serves a mount: how it starts, and how signals end it.

use super::{
    MountCommandError,
    devices::MountDevices,
    mounts,
    umount::{InUse, take_down},
};
use folioswap_supervisor::devices::networks::Networks;
use folioswap_tmpfs::{MountOptions, Mounted};
use std::{
    fs::{self, File},
    io::{self, Read, Write},
    mem::MaybeUninit,
    os::fd::OwnedFd,
    path::Path,
    process,
};

/// prctl(2): our memory helps to free memory, so allocations of ours must not wait for file systems, which may be ours.
const PR_SET_IO_FLUSHER: i32 = 57;
/// Among the last that the kernel kills for want of memory: with us goes what everybody has in the mount, and we are within a limit.
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
    serve(mounted, ending, &directory)
}

/// Mounts. What is returned beside it serves its network devices as long as it lives.
fn start(options: MountOptions, devices: MountDevices) -> Result<(Mounted, Networks), MountCommandError> {
    let (devices, networks) = devices.start()?;
    Ok((folioswap_tmpfs::mount(MountOptions { devices, ..options })?, networks))
}

/// Starts a process that does that; returns when it is mounted.
///
/// # Errors
/// [`MountCommandError`], also the child's; nothing is mounted then.
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

/// What the child says: this when it is mounted, else [`FAILED`] and a message.
const READY: u8 = 0;
const FAILED: u8 = 1;

fn child(options: MountOptions, devices: MountDevices, mut parent: File) -> ! {
    // A session of its own: no terminal, and no signals meant for our caller's processes.
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

/// Standard input, output and error belong to our caller, who may wait for their end.
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

/// What the process needs that others depend on. None of it is needed for correctness, and without root some of it is refused.
fn prepare() {
    // A thread that panics would leave its requests without an answer: better an end that everybody sees.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        process::abort();
    }));
    // SAFETY: sets a flag of this thread, which those that it starts inherit.
    unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) };
    let _ = fs::write("/proc/self/oom_score_adj", OOM_SCORE_ADJ);
}

/// Waits for the end of the mount; signals bring it about.
fn serve(mounted: Mounted, ending: Ending, directory: &Path) -> Result<(), MountCommandError> {
    let directory = directory.to_owned();
    let number = mounted.number();
    let signals = std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        ending.wait();
        // What else is mounted there by now is not ours to take down.
        let is_there =
            || number.is_some() && mounts::ours_at(&directory).is_some_and(|top| top.number == number);
        if is_there() && take_down(&directory, InUse::Refused).is_err() && is_there() {
            // Somebody has files open: they keep them, nobody else gets in, and it ends with the last.
            let _ = take_down(&directory, InUse::Detached);
        }
        // Who asks again does not want to wait.
        ending.wait();
        process::exit(1);
    });
    let failed = |doing| move |source| MountCommandError::System { doing, source };
    signals.map_err(failed("starting a thread"))?;
    mounted.wait().map_err(failed("the connection with the kernel"))
}

/// The signals that end a mount, blocked in all threads and waited for by one.
struct Ending(libc::sigset_t);

/// Which these are.
enum EndingSignals {
    /// With a terminal, whose end counts too.
    Terminal,
    /// Without.
    Daemon,
}

impl Ending {
    /// Blocks them. Before any thread is started.
    fn new(which: EndingSignals) -> Self {
        let signals: &[i32] = match which {
            EndingSignals::Terminal => &[libc::SIGTERM, libc::SIGINT, libc::SIGHUP],
            EndingSignals::Daemon => &[libc::SIGTERM, libc::SIGINT],
        };
        let mut set = MaybeUninit::uninit();
        // SAFETY: the set is initialised by the first call; the numbers are valid; the mask is that of this thread.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for &signal in signals {
                libc::sigaddset(set.as_mut_ptr(), signal);
                // Who started us with `nohup` or in the background may have it ignored; then it could not be waited for.
                libc::signal(signal, libc::SIG_DFL);
            }
            libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            Ending(set.assume_init())
        }
    }

    fn wait(&self) {
        let mut signal = 0;
        // SAFETY: the set is initialised; the number is written to `signal`. It fails for no set of ours.
        while unsafe { libc::sigwait(&raw const self.0, &raw mut signal) } != 0 {}
    }
}
