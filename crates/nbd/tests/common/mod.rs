//! Real servers for the tests: started in a directory of their own, ended and removed with it.
#![allow(dead_code, reason = "each test program uses some of it")]

pub mod pages;

use folioswap_nbd::uri::Uri;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Whether this program is installed. If not, the test says so and ends.
pub fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|dir| dir.join(program).exists());
    if !found {
        folioswap_test_support::skipping::note(&format!("{program} is not installed"));
    }
    found
}

/// The directory of one test.
pub struct TestDir(PathBuf);

impl TestDir {
    pub fn new() -> Self {
        let number = NEXT.fetch_add(1, Relaxed);
        let path = PathBuf::from(format!("/var/tmp/folioswap-nbd-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        TestDir(path)
    }
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
    /// An export on a Unix socket in the directory.
    pub fn uri(&self, export: &str) -> Uri {
        let socket = self.path("socket");
        Uri::parse(&format!("nbd+unix:///{export}?socket={}", socket.display())).expect("a URI")
    }
    /// A sparse file in the directory.
    pub fn disk(&self, bytes: u64) -> PathBuf {
        let path = self.path("disk");
        fs::File::create(&path).and_then(|file| file.set_len(bytes)).expect("a file");
        path
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A server that runs until it is dropped.
pub struct Server(Child);

impl Server {
    /// Starts a program and waits until its socket is there.
    pub fn start(program: &str, words: &[&str], socket: &Path) -> Self {
        let _ = fs::remove_file(socket);
        let child = Command::new(program)
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        let server = Server(child);
        listens(program, socket);
        server
    }

    /// nbdkit on the socket of the directory.
    pub fn nbdkit(dir: &TestDir, words: &[&str]) -> Self {
        let socket = dir.path("socket");
        let name = socket.display().to_string();
        let all: Vec<&str> = ["-f", "--exit-with-parent", "-U", &name].iter().chain(words).copied().collect();
        Server::start("nbdkit", &all, &socket)
    }

    /// Stops the server without closing anything, or lets it continue.
    pub fn signal(&self, signal: &str) {
        let done = Command::new("kill").args([signal, &self.0.id().to_string()]).status();
        assert!(done.expect("kill").success());
        if signal == "-STOP" {
            // Each of its threads stops a moment later, and one may still answer.
            until("it does not stop", || self.is_stopped());
        }
    }

    fn is_stopped(&self) -> bool {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.0.id())).expect("its threads");
        let stat =
            |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        tasks
            .flatten()
            .map(stat)
            .all(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T')))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn listens(program: &str, socket: &Path) {
    until(&format!("{program} does not listen"), || std::os::unix::net::UnixStream::connect(socket).is_ok());
}

/// A server that goes into the background by itself, until it is dropped.
pub struct Daemon(String);

impl Daemon {
    /// Starts a program that writes its process id to a file.
    pub fn start(program: &str, words: &[&str], pid: &Path) -> Self {
        let started = Command::new(program)
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        assert!(started.expect("started").success(), "{program} {words:?}");
        until("its process id", || fs::read_to_string(pid).is_ok_and(|text| text.ends_with('\n')));
        Daemon(fs::read_to_string(pid).expect("it").trim().to_owned())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(&self.0).status();
    }
}

/// A certificate authority, a server's certificate for `localhost`, and another authority, as
/// nbdkit and the client expect them.
pub fn certificates(dir: &TestDir) -> bool {
    if !has("openssl") {
        return false;
    }
    let run = |directory: &Path, words: &str| {
        let status = Command::new("openssl")
            .args(words.split(' '))
            .current_dir(directory)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        assert!(status.expect("openssl").success(), "openssl {words}");
    };
    for name in ["pki", "other"] {
        let directory = dir.path(name);
        fs::create_dir_all(&directory).expect("a directory");
        run(
            &directory,
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test-authority -keyout ca-key.pem -out \
             ca-cert.pem",
        );
    }
    let pki = dir.path("pki");
    fs::write(pki.join("names"), "subjectAltName=DNS:localhost\n").expect("written");
    run(
        &pki,
        "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost -keyout server-key.pem -out server.csr",
    );
    run(
        &pki,
        "x509 -req -in server.csr -CA ca-cert.pem -CAkey ca-key.pem -CAcreateserial -days 2 -extfile names -out server-cert.pem",
    );
    true
}

/// Waits until a condition holds.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}
