//! Swap on the exports of NBD servers: pages come back as they left, whatever the server does, or a
//! page is lost by name.

use folioswap_acceptance::job::{self, Engine, Job, Outcome};
use folioswap_acceptance::shown::wait_for_use;
use folioswap_acceptance::waiting::wait_until;
use folioswap_acceptance::{MIB, need, programs, skip};
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const TOUCH: &str = env!("CARGO_BIN_EXE_acc-touch");
const REDIS: &str = env!("CARGO_BIN_EXE_acc-redis");

/// A server and its directory.
struct Server {
    path: PathBuf,
    child: Option<Child>,
}

impl Server {
    fn start(name: &str, words: &[&str]) -> Self {
        let path = PathBuf::from(format!("/var/tmp/folioswap-acc-nbd-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        let mut server = Server { path, child: None };
        server.start_again(words);
        server
    }

    /// Starts nbdkit with these arguments. `disk` is a sparse file of 1 GiB.
    fn start_again(&mut self, words: &[&str]) {
        let disk = self.disk();
        if !disk.exists() {
            fs::File::create(&disk).and_then(|file| file.set_len(1 << 30)).expect("a file");
        }
        let (disk, socket) = (disk.display().to_string(), self.path.join("socket"));
        let child = Command::new("nbdkit")
            .args(["-f", "--exit-with-parent", "-U"])
            .arg(&socket)
            .args(words.iter().map(|&word| if word == "disk" { disk.as_str() } else { word }))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.child = Some(child.expect("nbdkit starts"));
        let until = Instant::now() + Duration::from_secs(10);
        while UnixStream::connect(&socket).is_err() {
            assert!(Instant::now() < until, "nbdkit {words:?} does not listen");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().and_then(|()| child.wait()).expect("it ran");
            drop(fs::remove_file(self.path.join("socket")));
        }
    }

    fn disk(&self) -> PathBuf {
        self.path.join("disk")
    }

    /// The value of `--swap` for the server.
    fn option(&self, more: &str) -> String {
        format!("nbd+unix:///?socket={}{more}", self.path.join("socket").display())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        drop(fs::remove_dir_all(&self.path));
    }
}

fn job<'a>(server: &Server, more: &str, words: impl IntoIterator<Item = &'a str>) -> Job {
    let device = server.option(&format!(",prio=0{more}"));
    let job = Job::new(words).timeout(Duration::from_secs(900));
    job.option("--swap").option("zram,prio=1").option("--swap").option(device)
}

/// More than a process takes at once, so that some of it has been written.
const IN_USE: u64 = 64 * MIB;
const LIMIT: Engine = Engine::Folioswap { memory: Some(48 * MIB), scope: "total" };

fn is_on_server(outcome: &Outcome, bytes: u64) {
    let stats = outcome.stats.as_ref().expect("statistics");
    let used = stats["devices"][1]["used_peak_bytes"].as_u64().expect("bytes");
    assert_eq!(stats["devices"][1]["type"], "nbd", "{}", outcome.describe());
    assert!(used >= bytes, "{used} bytes on the server: {}", outcome.describe());
}

macro_rules! need_server {
    ($($more:literal)*) => {
        if !job::judging_folioswap() {
            skip!("only for folioswap");
        }
        need!("nbdkit" $(, $more)*);
    };
}

/// A program that checks all its data, four times the limit, over a server that does something else
/// each time.
#[test]
fn what_comes_back_is_what_went_out() {
    need_server!();
    let words = [TOUCH, "--size", "192M", "--kind", "mixed", "--threads", "2", "--phases"];
    let words = words.into_iter().chain(["fill,random,verify", "--touches", "3000"]);
    let mut server = Server::start("data", &["file", "disk"]);
    let outcome = job(&server, ",discard", words.clone()).under(LIMIT);
    outcome.check();
    is_on_server(&outcome, 32 * MIB);
    job::report("zram and nbd", &outcome);
    let mark = fs::read(server.disk()).expect("it");
    assert!(mark[..4096].iter().all(|&byte| byte == 0), "the mark is off");
    // One request in a hundred fails.
    server.stop();
    server.start_again(&["--filter=error", "file", "disk", "error=EIO", "error-rate=1%"]);
    let outcome = job(&server, "", words.clone()).under(LIMIT);
    outcome.check();
    assert_eq!(outcome.figure("pages_poisoned"), Some(0.0), "{}", outcome.describe());
    // The server is restarted twice while the program runs.
    server.stop();
    server.start_again(&["file", "disk"]);
    let phases = "fill,reread,reread,reread,random,verify";
    let words = [TOUCH, "--size", "192M", "--kind", "mixed", "--threads", "2", "--phases", phases];
    let mut running = job(&server, "", words.into_iter().chain(["--touches", "3000"])).start(LIMIT);
    wait_for_use(&mut running, "nbd0", IN_USE);
    for _ in 0..2 {
        let again = running.errors().matches("connected again").count() + 1;
        server.stop();
        thread::sleep(Duration::from_millis(200));
        server.start_again(&["file", "disk"]);
        wait_until("connected again", || running.errors().matches("connected again").count() == again);
    }
    assert!(!running.poll(), "it was restarted under load");
    let outcome = running.finish();
    // The message about the server is no failure.
    assert_eq!(outcome.code, Some(0), "{}", outcome.describe());
    assert_eq!(outcome.figure("pages_poisoned"), Some(0.0), "{}", outcome.describe());
    assert!(outcome.stderr.contains("connected again"), "{}", outcome.describe());
}

/// An empty server takes the place of the one that had the pages: the program never reads zeroes,
/// but gets SIGBUS, and the pages are lost by name.
#[test]
fn a_replaced_server_costs_its_pages() {
    need_server!();
    for more in ["", ",encrypt=no"] {
        let mut server = Server::start("replaced", &["memory", "1G"]);
        let words =
            [TOUCH, "--size", "192M", "--kind", "random", "--phases", "fill,reread,reread,reread,verify"];
        let mut running = job(&server, more, words).start(LIMIT);
        wait_for_use(&mut running, "nbd0", IN_USE);
        server.stop();
        server.start_again(&["memory", "1G"]);
        assert!(!running.poll(), "it was replaced under load");
        let outcome = running.finish();
        // A process that touches a lost page gets SIGBUS; or there is no room any more for the
        // remaining pages.
        assert!(matches!(outcome.code, Some(135 | 137)), "{}", outcome.describe());
        assert!(outcome.stderr.contains("not the export that it was"), "{}", outcome.describe());
        assert!(!outcome.text().contains("differs"), "{}", outcome.describe());
    }
}

/// The server is away when its device is to be taken off, comes back, and may end for good once it
/// is off; another one takes its place.
#[test]
fn a_server_is_let_go_and_another_taken() {
    need_server!();
    let mut first = Server::start("leaves", &["file", "disk"]);
    let second = Server::start("comes", &["memory", "1G"]);
    let phases = ["reread"; 12].join(",");
    let phases = format!("fill,{phases},verify");
    let words = [TOUCH, "--size", "160M", "--kind", "random", "--phases", &phases];
    let mut running = job(&first, "", words).start(LIMIT);
    let folioswap = |words: &[&str]| {
        let done = programs::run_folioswap(words);
        assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    };
    let pid = running.pid.to_string();
    wait_for_use(&mut running, "nbd0", IN_USE);
    folioswap(&["swapon", "--swap", &second.option(",prio=0"), &pid]);
    first.stop();
    thread::scope(|scope| {
        let swapoff = scope.spawn(|| folioswap(&["swapoff", "--pid", &pid, "nbd0"]));
        thread::sleep(Duration::from_millis(500));
        assert!(!swapoff.is_finished(), "its pages are not here");
        first.start_again(&["file", "disk"]);
        swapoff.join().expect("it has left");
    });
    let mark = fs::read(first.disk()).expect("it");
    assert!(mark[..4096].iter().all(|&byte| byte == 0), "the mark is off");
    first.stop();
    assert!(!running.poll(), "they were exchanged under load: {}", running.errors());
    let outcome = running.finish();
    job::report("nbd to nbd", &outcome);
    assert_eq!(outcome.code, Some(0), "{}", outcome.describe());
    assert_eq!(outcome.figure("pages_poisoned"), Some(0.0), "{}", outcome.describe());
    let stats = outcome.stats.as_ref().expect("statistics");
    assert!(stats["devices"][2]["used_peak_bytes"].as_u64() >= Some(32 * MIB), "{}", outcome.describe());
}

/// A planted pattern is not found on the export, unless encryption is off.
#[test]
fn nothing_can_be_read_on_the_server() {
    need_server!("python3");
    let program = "import os\nb=[bytearray(b'planted-pattern %7d '%i+os.urandom(3900)) for i in range(22000)]\nfor i,x in \
                   enumerate(b): assert x.startswith(b'planted-pattern %7d '%i)\n";
    for (more, readable) in [("", false), (",encrypt=no", true)] {
        let server = Server::start("secret", &["file", "disk"]);
        let outcome = job(&server, more, ["python3", "-c", program]).under(LIMIT);
        outcome.check();
        is_on_server(&outcome, 8 * MIB);
        let found = Command::new("grep").args(["-c", "-a", "planted-pattern"]).arg(server.disk()).output();
        let found = found.expect("grep").stdout != b"0\n";
        assert_eq!(found, readable, "{more}");
    }
}

/// Redis with every value checked, on a server that answers late.
#[test]
fn redis_over_a_slow_server() {
    need_server!("redis-server");
    let server = Server::start("redis", &["--filter=delay", "memory", "1G", "rdelay=5ms", "wdelay=5ms"]);
    let script = r#"
set -e
socket=$PWD/socket
redis-server --port 0 --unixsocket "$socket" --save "" --dir "$PWD" --logfile "$PWD/log" --daemonize no >/dev/null 2>&1 &
server=$!
"$0" "$socket" ping
"$0" "$socket" write 0 30000 2500
"$0" "$socket" check 0 500 2500
"$0" "$socket" write 1000 2000 3000
"$0" "$socket" check 1000 2000 3000
"$0" "$socket" check 29000 30000 2500
"$0" "$socket" shutdown
wait $server
"#;
    let outcome = job(&server, "", ["sh", "-c", script, REDIS]).under(LIMIT);
    outcome.check();
    is_on_server(&outcome, 16 * MIB);
    job::report("redis over nbd", &outcome);
}

/// An export that cannot serve is refused before anything starts, with advice.
#[test]
fn what_cannot_serve_is_refused() {
    need_server!();
    let server = Server::start("bad", &["-r", "memory", "64M"]);
    let marker = server.path.join("started");
    let refused = |device: &str, words: &[&str]| {
        let output = Command::new(programs::folioswap())
            .args(["run", "-m", "64M", "--swap", device, "--", "touch"])
            .arg(&marker)
            .output()
            .expect("folioswap can be run");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(125), "{device}: {text}");
        assert!(!marker.exists() && !text.contains("panicked"), "{device}: {text}");
        for word in words {
            assert!(text.contains(word), "{device}: {word:?} is missing in {text}");
        }
    };
    refused(&server.option(""), &["read-only"]);
    refused("nbd://no-such-host.invalid/", &["no-such-host.invalid", "check the name"]);
    refused("nbd://127.0.0.1:1/", &["127.0.0.1:1", "is the server running"]);
    refused("nbd+unix:///?socket=/nowhere", &["/nowhere"]);
    refused("nbds://127.0.0.1/?tls-certificates=/nowhere", &["/nowhere/ca-cert.pem"]);
    refused("nbd://host/,colour=red", &["colour", "encrypt"]);
    let mut server = server;
    server.stop();
    server.start_again(&["memory", "1M"]);
    refused(&server.option(""), &["1048576 bytes", "larger"]);
    server.stop();
    server.start_again(&["data", "data=@510 0x55 0xaa", "size=64M"]);
    refused(&server.option(""), &["holds something already"]);
    server.stop();
    server.start_again(&["--filter=exportname", "memory", "64M", "exportname=one", "exportname-strict=true"]);
    let missing = server.option("").replace("///?", "///two?");
    refused(&missing, &["no export named 'two'"]);
    refused(
        &format!("{},size=1G", server.option("").replace("///?", "///one?")),
        &["size=1.0 GiB", "63.0 MiB"],
    );
}
