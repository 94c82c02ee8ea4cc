//! `folioswap top`: running groups and mounts, live.
//!
//! Three parts that know nothing of each other's business: [`reading`] reads everything once an
//! interval, in a thread of its own; [`view`] is what the user sees and has chosen, changed by
//! readings and keys; [`draw`] puts a view on a screen of any size. This file joins them to a
//! terminal.

mod draw;
mod history;
mod reading;
mod row;
mod timeline;
mod view;

use crate::{delay, error::Error, operate::change};
use clap::Args;
use folioswap_group::protocol::Change;
use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event, KeyEventKind},
};
use reading::Reading;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    io::{self, IsTerminal},
    sync::{
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::Duration,
};
use view::{Action, View};

/// How long a key, a reading or a change of the screen's size may wait.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

const EXAMPLES: &str = "\
Keys:
  Up, Down, j, k      choose a group or mount
  Enter               its processes and devices; once more: back
  t                   its last minutes, large; once more: back
  s                   sort by the next column
  m                   set the limit of the chosen one: a size, then Enter
  q, Esc, Ctrl-C      quit

OUT/s and IN/s are bytes swapped out and in. WAIT% is the time that threads
have waited for pages, of one thread's time; it can be more than 100 where
several wait. PAGER% is processor time of folioswap's threads, of one CPU.
P99 us is the time that 99 % of the faults took at most. NO_COLOR: no
colours. `folioswap ps` prints once. Exit status: 0; 125 without a terminal.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct TopArguments {
    /// Seconds between two readings, 0.1 to 3600
    #[arg(short = 'd', long, value_name = "SECONDS", default_value = "1", value_parser = parse_delay)]
    pub delay: Duration,
}

fn parse_delay(text: &str) -> Result<Duration, String> {
    delay::parse(text, 3600)
}

/// Why there is nothing to see.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// Standard output or input is no terminal.
    #[error(
        "top needs a terminal; `folioswap ps` prints the groups once, `folioswap ps --json` for programs"
    )]
    NoTerminal,
    /// The terminal cannot be used.
    #[error("the terminal: {0}")]
    Terminal(#[from] io::Error),
}

/// The command.
///
/// # Errors
/// [`TopError`].
pub fn top(arguments: &TopArguments) -> Result<i32, Error> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(TopError::NoTerminal.into());
    }
    let (readings, incoming) = mpsc::channel();
    let delay = arguments.delay;
    let reader = thread::Builder::new().name("reader".to_owned()).spawn(move || {
        while readings.send(Reading::now()).is_ok() {
            thread::sleep(delay);
        }
    });
    reader.map_err(TopError::Terminal)?;
    end_at_signals();
    let mut terminal = ratatui::try_init().map_err(TopError::Terminal)?;
    let result = show(&mut terminal, &incoming);
    ratatui::restore();
    result.map_err(TopError::Terminal)?;
    Ok(0)
}

fn show(terminal: &mut DefaultTerminal, readings: &Receiver<Reading>) -> io::Result<()> {
    let colours = if std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) {
        draw::Colours::None
    } else {
        draw::Colours::Some
    };
    let (answers, answered) = mpsc::channel();
    let mut view = View::default();
    terminal.draw(|frame| draw::draw(frame, &mut view, colours))?;
    while !ENDED.load(Relaxed) {
        let mut has_changed = false;
        for reading in readings.try_iter() {
            view.take(reading);
            has_changed = true;
        }
        for answer in answered.try_iter() {
            view.say(answer);
            has_changed = true;
        }
        match wait_for_input() {
            Input::Gone => return Ok(()),
            Input::Perhaps => {}
        }
        while event::poll(Duration::ZERO)? {
            match event::read()? {
                Event::Key(key) if key.kind == KeyEventKind::Press => match view.key(key) {
                    Action::Quit => return Ok(()),
                    Action::SetLimit(target, bytes) => set_limit(target, bytes, answers.clone()),
                    Action::None => {}
                },
                _ => {}
            }
            has_changed = true;
        }
        if has_changed {
            terminal.draw(|frame| draw::draw(frame, &mut view, colours))?;
        }
    }
    Ok(())
}

/// What a wait for input has found.
enum Input {
    /// There may be a key, or another size of the screen.
    Perhaps,
    /// The terminal is gone.
    Gone,
}

/// Waits for a key or a signal, for a while. crossterm (0.29) reads a terminal that was hung up
/// without end, so that is looked for before it is asked.
fn wait_for_input() -> Input {
    let stdin = io::stdin();
    let mut waiting = [PollFd::new(&stdin, PollFlags::IN)];
    // An error (EINTR) only makes the loop look earlier.
    let _ = poll(&mut waiting, Some(&LOOK));
    let is_gone = waiting[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL);
    if is_gone { Input::Gone } else { Input::Perhaps }
}

/// Sets a limit in a thread of its own, since a group may take seconds to come within it.
fn set_limit(target: view::Key, bytes: u64, answers: Sender<String>) {
    let work = move || {
        let done = match &target {
            view::Key::Group(pid) => {
                crate::operate::targets::of_process(*pid).and_then(|target| match target {
                    crate::operate::targets::Target::Group(group) => {
                        change::ask(&group, Change::Limit(bytes)).map(|_| group.description.name.clone())
                    }
                    crate::operate::targets::Target::Mount(_) => Ok(String::new()),
                })
            }
            view::Key::Mount(directory) => crate::operate::targets::mount_at(directory).and_then(|point| {
                crate::operate::set::set_limits(&point, Some(bytes), None)
                    .map(|()| point.directory.display().to_string())
            }),
        };
        let said = match done {
            Ok(name) => format!("{name}: the limit is {} now", folioswap_supervisor::size::short(bytes)),
            Err(error) => error.to_string(),
        };
        // Without a receiver the program has ended.
        let _ = answers.send(said);
    };
    // Without a thread nothing changes, and the screen shows the old limit.
    let _ = thread::Builder::new().name("change".to_owned()).spawn(work);
}

/// Set by a signal that ends us, so that the terminal is left as it was.
static ENDED: AtomicBool = AtomicBool::new(false);

extern "C" fn end(_signal: libc::c_int) {
    ENDED.store(true, Relaxed);
}

/// SIGHUP ends us by itself: there is no terminal any more.
fn end_at_signals() {
    let handler: extern "C" fn(libc::c_int) = end;
    // SAFETY: the handler stores to an atomic, which is allowed in any handler.
    unsafe { libc::signal(libc::SIGTERM, handler as libc::sighandler_t) };
}

#[cfg(test)]
mod tests;
