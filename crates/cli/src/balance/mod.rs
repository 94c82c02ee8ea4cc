//! `folioswap balance`: groups share an amount of memory by their weights.
//!
//! A group has a limit of its own, which its supervisor keeps. This command looks at the groups
//! twice a second ([`partners`]), decides who gets how much ([`plan`]), and asks each group for its
//! new limit as `folioswap set` does ([`changes`]). Limits rise only into what others have given up
//! already, so the sum of limits stays within what is shared.
//!
//! A group needs more when it swaps. It counts as needing more for a while after it has stopped, so
//! that limits do not swing.

pub mod arguments;
mod changes;
mod partners;
mod plan;

use crate::{error::Error, interrupt::Signals, operate::OperateError, run::memory};
use arguments::BalanceArguments;
use changes::{Changes, Ended};
use folioswap_supervisor::{
    ipc::{groups::Group, wire},
    processes::peer,
    size::{self, LIMIT_MIN},
};
use partners::{Known, Partner};
use plan::Party;
use rustix::{fd::OwnedFd, io::Errno, process::geteuid};
use std::{collections::HashSet, io::Write, time::Instant};

/// Limits are changed by at least this part of themselves, and at least so many bytes.
const STEP_PART: u64 = 16;
const STEP_MIN: u64 = 2 << 20;
/// They are lowered by at most this part of themselves at a time.
const LOWER_PART: u64 = 4;

/// Why nothing is balanced.
#[derive(Debug, thiserror::Error)]
pub enum BalanceError {
    /// Another balance of this user runs.
    #[error("another `folioswap balance` of yours runs: end it first, two would undo each other's limits")]
    Another,
    /// A group was named twice.
    #[error("{0} is named twice: name each group once")]
    Twice(String),
    /// The amount is too small for anything.
    #[error("--memory {0} is too small to share; the least limit of one group is 8M")]
    TooSmall(String),
    /// The amount is more than there is.
    #[error("--memory {given} is more than the RAM of this machine or container ({ram}): give less")]
    TooLarge {
        /// The amount, readable.
        given: String,
        /// What there is, readable.
        ram: String,
    },
}

/// The command.
///
/// # Errors
/// [`BalanceError`], or the output cannot be written.
pub fn balance(arguments: &BalanceArguments) -> Result<i32, Error> {
    let (total, ram) = (arguments.memory.bytes(), memory::whole());
    if total > ram {
        return Err(BalanceError::TooLarge { given: size::show(total), ram: size::show(ram) }.into());
    }
    if total < LIMIT_MIN {
        return Err(BalanceError::TooSmall(size::show(total)).into());
    }
    let mut names = HashSet::new();
    if let Some((twice, _)) = arguments.groups.iter().find(|(name, _)| !names.insert(name)) {
        return Err(BalanceError::Twice(twice.clone()).into());
    }
    // The socket is open until the end of this function.
    let _only = only_one()?;
    let signals = Signals::block();
    let mut balance = Balance {
        total,
        names: &arguments.groups,
        known: Known::default(),
        changes: Changes::new(),
        warned: Warned::default(),
    };
    loop {
        for line in balance.look() {
            say(&line)?;
        }
        if signals.one_came_within(arguments.delay) {
            say("ended; the limits stay as they are")?;
            return Ok(0);
        }
    }
}

fn say(line: &str) -> Result<(), Error> {
    let mut output = std::io::stdout();
    writeln!(output, "{line}").and_then(|()| output.flush()).map_err(Error::Output)
}

/// Takes the name that one balance of a user can have; the kernel gives it back when we end.
/// Another user who holds the name keeps nobody from balancing: then there is no socket.
fn only_one() -> Result<Option<OwnedFd>, Error> {
    let name = format!("folioswap-balance-{}", geteuid().as_raw());
    match wire::listen_as(&name) {
        Ok(socket) => Ok(Some(socket)),
        // A listener whose queue is full is none of ours, and not waited for.
        Err(Errno::ADDRINUSE) => match wire::connect_at_once(&name).and_then(peer::user_of) {
            Ok(user) if user == geteuid() => Err(BalanceError::Another.into()),
            _ => Ok(None),
        },
        Err(errno) => Err(Error::system("taking the name of a balance")(errno)),
    }
}

/// What was said once, and is not said again before it has changed.
#[derive(Default)]
struct Warned {
    that_none_runs: bool,
    that_all_is_too_little: bool,
}

struct Balance<'a> {
    total: u64,
    names: &'a [(String, Option<u32>)],
    known: Known,
    changes: Changes,
    warned: Warned,
}

impl Balance<'_> {
    /// Looks at the groups, and begins what changes there are to make. Returns what there is to
    /// say.
    fn look(&mut self) -> Vec<String> {
        let now = Instant::now();
        // Before the look, so that a group that has refused rests in it.
        let ended = self.changes.take_ended();
        let mut lines: Vec<String> = ended.iter().filter_map(|ended| self.note(ended, now)).collect();
        let names = self.names;
        let partners = self.known.look(now, |group| weight(names, group));
        let silent = partners.silent.iter().map(|(socket, limit)| self.held(socket, *limit));
        let others = silent.fold(partners.ending, u64::saturating_add);
        let is_empty = partners.able.is_empty() && others == 0;
        let was_said = std::mem::replace(&mut self.warned.that_none_runs, is_empty);
        if is_empty && !was_said {
            lines.push("no such group runs yet; waiting".to_owned());
        }
        let parties: Vec<Party> = partners.able.iter().map(|partner| partner.party).collect();
        let wanted = plan::allot(self.total.saturating_sub(others), &parties);
        lines.extend(self.warning(&wanted, others));
        self.settle(&partners.able, others, &wanted);
        lines
    }

    /// The most that the limit of a group may be, which is this as it was last seen.
    fn held(&self, socket: &str, limit: u64) -> u64 {
        self.changes.most(socket).map_or(limit, |most| most.max(limit))
    }

    /// Asks for the limits that are wanted: for higher ones as far as there is room by now, for
    /// lower ones by a part at a time, so that none takes long.
    fn settle(&mut self, partners: &[Partner], others: u64, wanted: &[u64]) {
        let limits = partners.iter().map(|partner| self.held(&partner.socket, partner.limit));
        let sum = limits.fold(others, u64::saturating_add);
        let mut spare = self.total.saturating_sub(sum);
        let idle = |(partner, _): &(&Partner, u64)| self.changes.most(&partner.socket).is_none();
        let pairs: Vec<(&Partner, u64)> = partners.iter().zip(wanted.iter().copied()).filter(idle).collect();
        let rises = pairs.iter().filter_map(|(partner, wanted)| rise(partner, *wanted));
        let lacks_room = sum > self.total || rises.fold(0, u64::saturating_add) > spare;
        for (partner, wanted) in pairs {
            let (limit, step) = (partner.limit, step(partner.limit));
            let lower = limit.saturating_sub(wanted).min((limit / LOWER_PART).max(step));
            let higher = rise(partner, wanted).unwrap_or(0).min(spare);
            if lower >= step || (lacks_room && lower > 0) {
                self.changes.begin(partner, limit - lower);
            } else if higher >= step {
                spare -= higher;
                self.changes.begin(partner, limit + higher);
            }
        }
    }

    /// Says once that the groups cannot come within the amount.
    fn warning(&mut self, wanted: &[u64], others: u64) -> Option<String> {
        let sum = wanted.iter().copied().fold(others, u64::saturating_add);
        let is_too_little = sum > self.total;
        let is_new = !std::mem::replace(&mut self.warned.that_all_is_too_little, is_too_little);
        (is_too_little && is_new).then(|| {
            format!(
                "the groups cannot come below {} together, more than {}: end one, or share more",
                size::show(sum),
                size::show(self.total)
            )
        })
    }

    /// Notes how a change has ended; returns what there is to say.
    fn note(&mut self, ended: &Ended, now: Instant) -> Option<String> {
        match &ended.end {
            Ok(_) => {
                self.known.changed(&ended.socket, ended.to);
                let (from, to) = (size::short(ended.from), size::short(ended.to));
                Some(format!("{}: {from} -> {to}", ended.name))
            }
            // It was somebody else's, or the last one.
            Err(OperateError::Busy(_) | OperateError::Ended(_)) => None,
            Err(error) => self.known.refused(&ended.socket, ended.from, now).then(|| error.to_string()),
        }
    }
}

/// The weight of a group that takes part: one of our own user, which has one of the names if there
/// are some.
fn weight(names: &[(String, Option<u32>)], group: &Group) -> Option<u32> {
    // Root too: what another user's group says of itself must not decide over ours.
    if group.owner != geteuid().as_raw() {
        return None;
    }
    let own = group.description.weight;
    if names.is_empty() {
        return Some(own);
    }
    let named = names.iter().find(|(name, _)| *name == group.description.name)?;
    Some(named.1.unwrap_or(own))
}

/// By how much a limit is to rise, where that is worth making.
fn rise(partner: &Partner, wanted: u64) -> Option<u64> {
    Some(wanted.saturating_sub(partner.limit)).filter(|&by| by >= step(partner.limit))
}

/// The least change of a limit that is worth making.
fn step(limit: u64) -> u64 {
    (limit / STEP_PART).max(STEP_MIN)
}
