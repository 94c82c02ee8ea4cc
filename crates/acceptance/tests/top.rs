//! `folioswap top` in a real terminal: tmux shows what is on its screen.

use folioswap_acceptance::job::{self, Engine, Job, Running};
use folioswap_acceptance::programs::{folioswap, run_folioswap, which};
use folioswap_acceptance::waiting::wait_until;
use folioswap_acceptance::{MIB, skip};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

const TOUCH: &str = env!("CARGO_BIN_EXE_acc-touch");

/// A tmux server of its own with one window, in which `top` runs; ended on drop.
struct Terminal {
    socket: String,
}

impl Terminal {
    fn new(name: &str, (width, height): (u32, u32), environment: &str) -> Self {
        // A server that is ending does not take a new session: each terminal has its own.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Relaxed);
        let terminal = Terminal { socket: format!("folioswap-{name}-{}-{number}", std::process::id()) };
        let command =
            format!("{environment} {} top -d 0.2; echo status $?; exec sleep 600", folioswap().display());
        let (width, height) = (width.to_string(), height.to_string());
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", &width, "-y", &height, &command]);
        // The window has all lines of the screen.
        terminal.tmux(&["set-option", "-g", "status", "off"]);
        terminal.tmux(&["resize-window", "-x", &width, "-y", &height]);
        terminal
    }

    fn tmux(&self, words: &[&str]) -> String {
        let output = Command::new("tmux").args(["-L", &self.socket]).args(words).output().expect("tmux");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "tmux {words:?}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The lines of the screen, as many as it has.
    fn screen(&self) -> Vec<String> {
        self.tmux(&["capture-pane", "-p"]).lines().map(str::to_owned).collect()
    }

    /// The screen with the codes of colours and attributes.
    fn codes(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-e"])
    }

    fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Chooses this group, wherever it stands among those of other tests.
    fn choose(&self, name: &str) {
        for step in 0.. {
            self.keys(&["m"]);
            let screen = self.wait("a limit is asked for", |screen| has(screen, "new limit of "));
            self.keys(&["Escape"]);
            self.wait("and no more", |screen| !has(screen, "new limit of "));
            if has(&screen, &format!("new limit of {name}: ")) {
                return;
            }
            self.keys(&[if step % 20 == 19 { "Home" } else { "Down" }]);
            assert!(step < 200, "{name} is not there:\n{}", screen.join("\n"));
        }
    }

    /// The process id of top.
    fn top(&self) -> i32 {
        let pane = self.tmux(&["list-panes", "-F", "#{pane_pid}"]);
        let shell = pane.trim();
        let children =
            std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap_or_default();
        children.split_whitespace().next().expect("top runs").parse().expect("a number")
    }

    /// Waits until the screen is as wanted; shows it if it does not become so.
    #[track_caller]
    fn wait(&self, what: &str, is_so: impl Fn(&[String]) -> bool) -> Vec<String> {
        let begun = std::time::Instant::now();
        loop {
            let screen = self.screen();
            if is_so(&screen) {
                return screen;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{what}: not on\n{}", screen.join("\n"));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        drop(Command::new("tmux").args(["-L", &self.socket, "kill-server"]).output());
    }
}

macro_rules! only_with_tmux {
    () => {
        if !job::judging_folioswap() {
            skip!("only for folioswap");
        }
        if which("tmux").is_none() {
            skip!("tmux is missing");
        }
    };
}

fn start(name: &str, words: &[&str]) -> Running {
    let job = Job::new(words).option("--name").option(name).timeout(Duration::from_secs(300));
    job.start(Engine::Folioswap { memory: Some(48 * MIB), scope: "total" })
}

/// The words of the line that begins with this one.
fn words_of(screen: &[String], name: &str) -> Vec<String> {
    let line = screen.iter().find(|line| line.split_whitespace().next() == Some(name));
    line.map(|line| line.split_whitespace().map(str::to_owned).collect()).unwrap_or_default()
}

fn has(screen: &[String], text: &str) -> bool {
    screen.iter().any(|line| line.contains(text))
}

#[test]
fn a_group_is_seen_changed_and_looked_into() {
    only_with_tmux!();
    let phases = ["random"; 400].join(",");
    let phases = format!("fill,{phases},verify");
    let words = [TOUCH, "--size", "64M", "--kind", "mixed", "--phases", &phases, "--touches", "20000"];
    let running = start("acc-top", &words);
    let terminal = Terminal::new("group", (80, 24), "");
    // A screen may be seen while it is drawn: what belongs to it is waited for at once.
    let screen = terminal.wait("the group swaps", |screen| {
        let words = words_of(screen, "acc-top");
        let is_drawn = screen.len() == 24 && screen[23].starts_with(" q quit");
        is_drawn && words.len() > 6 && words[3].ends_with('M') && words[6] != "0"
    });
    assert!(screen[0].starts_with(" folioswap top  ") && screen[0].contains("RAM "), "{screen:#?}");
    let heading: Vec<&str> = screen[1].split_whitespace().collect();
    assert_eq!(heading[..8], ["GROUP", "LIMIT", "CHARGE", "SWAPPED", "RATIO", "OUT/s", "IN/s", "WAIT%"]);
    assert_eq!(words_of(&screen, "acc-top")[1], "48.0M");
    assert!(screen.iter().all(|line| line.chars().count() <= 80), "{screen:#?}");
    // On a larger screen there are more columns, at once.
    terminal.tmux(&["resize-window", "-x", "160", "-y", "50"]);
    terminal.wait("the larger screen is used", |screen| {
        let is_drawn = screen.len() == 50 && screen[49].starts_with(" q quit");
        let wanted = ["PAGER%", "COMMAND", "[####", "pressure of 10, 60, 300 s: some"];
        is_drawn && wanted.iter().all(|text| has(screen, text))
    });
    // The limit is set by typing it.
    terminal.choose("acc-top");
    terminal.keys(&["m", "3", "2", "M"]);
    terminal.wait("what is typed is shown", |screen| has(screen, "new limit of acc-top: 32M_"));
    terminal.keys(&["Enter"]);
    terminal.wait("the limit has changed", |screen| {
        words_of(screen, "acc-top").get(1).is_some_and(|limit| limit == "32.0M")
    });
    terminal.wait("it is said", |screen| has(screen, "acc-top: the limit is 32.0M now"));
    terminal.keys(&["m", "1", "2", "q", "Enter"]);
    terminal.wait("no size is no limit", |screen| has(screen, "12q: not a size"));
    // Its processes and devices.
    terminal.keys(&["Enter"]);
    terminal.wait("its processes and devices are shown", |screen| {
        ["WAITED s", "acc-touch", "zram", "/var/tmp"].iter().all(|text| has(screen, text))
    });
    terminal.keys(&["Enter"]);
    terminal.wait("and no more", |screen| !has(screen, "WAITED s"));
    // Its last minutes.
    terminal.keys(&["t"]);
    terminal.wait("the timeline is shown", |screen| {
        [" waiting, ", "0:", " now", "█"].iter().all(|text| has(screen, text))
    });
    terminal.keys(&["t"]);
    terminal.wait("and no more", |screen| !has(screen, " waiting, "));
    terminal.keys(&["q"]);
    terminal
        .wait("it ends, and leaves the screen", |screen| has(screen, "status 0") && !has(screen, "GROUP"));
    running.signal(libc::SIGKILL);
}

#[test]
fn colours_are_left_out_when_that_is_wanted() {
    only_with_tmux!();
    let mut running = start("acc-colours", &["sh", "-c", "echo here; exec sleep 600"]);
    running.wait_for_output("here");
    // Codes 30 to 37, 90 to 97 and 38 are colours of letters.
    let has_colours = |codes: &str| {
        codes.split('\x1b').skip(1).any(|code| {
            let numbers = code.trim_start_matches('[').split('m').next().unwrap_or_default();
            numbers.split(';').any(|number| matches!(number.parse(), Ok(30..=38 | 90..=97)))
        })
    };
    for (environment, expected) in [("NO_COLOR=1", false), ("NO_COLOR=", true)] {
        let terminal = Terminal::new("colours", (80, 24), environment);
        terminal.wait("the group is shown", |screen| words_of(screen, "acc-colours").len() > 3);
        let codes = terminal.codes();
        assert_eq!(has_colours(&codes), expected, "{codes:?}");
    }
    running.signal(libc::SIGKILL);
}

/// A signal that ends it leaves the terminal as it was.
#[test]
fn a_terminal_is_left_as_it_was() {
    only_with_tmux!();
    let terminal = Terminal::new("ended", (80, 24), "");
    terminal.wait("it runs", |screen| has(screen, "folioswap top"));
    let top = terminal.top();
    // SAFETY: kill has no memory effects; the process is top, in our terminal.
    assert_eq!(unsafe { libc::kill(top, libc::SIGTERM) }, 0);
    terminal.wait("it ends", |screen| has(screen, "status 0") && !has(screen, "RAM"));
    let alternate = terminal.tmux(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]);
    assert_eq!(alternate.trim(), "0 1", "the ordinary screen, with its cursor");
}

/// A terminal that goes away takes it along: it does not go on reading nothing.
#[test]
fn it_ends_with_its_terminal() {
    only_with_tmux!();
    let terminal = Terminal::new("gone", (80, 24), "");
    terminal.wait("it runs", |screen| has(screen, "folioswap top"));
    let top = terminal.top();
    drop(terminal);
    wait_until("it has ended", || !std::path::Path::new(&format!("/proc/{top}")).exists());
}

/// Running groups, ended on drop.
struct Groups(Vec<std::process::Child>);

impl Drop for Groups {
    fn drop(&mut self) {
        for group in &mut self.0 {
            drop(group.kill());
            drop(group.wait());
        }
    }
}

/// As many groups as a machine of this size has room for are listed, and the last one is reached.
#[test]
fn many_groups_are_all_there() {
    only_with_tmux!();
    const COUNT: usize = 200;
    let mut groups = Groups(Vec::new());
    for number in 0..COUNT {
        let name = format!("many-{number:03}");
        let mut command = Command::new(folioswap());
        command.args(["run", "--name", &name, "-m", "16M", "--swap-max", "0", "--", "sleep", "600"]);
        groups.0.push(command.spawn().expect("started"));
    }
    let terminal = Terminal::new("many", (80, 24), "");
    // Other tests may have groups of their own.
    let counted =
        |screen: &[String]| screen.first()?.split(" group").next()?.split(' ').next_back()?.parse().ok();
    terminal.wait("all are counted", |screen| counted(screen) >= Some(COUNT));
    terminal.keys(&["End"]);
    terminal.wait("the last is reached", |screen| has(screen, "many-199") && !has(screen, "many-000"));
    terminal.keys(&["Home"]);
    terminal.wait("and the first", |screen| has(screen, "many-000"));
    let listed = run_folioswap(&["ps"]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert_eq!(listed.lines().filter(|line| line.starts_with("many-")).count(), COUNT);
}
