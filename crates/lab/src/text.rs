//! Traces as text, a line a record: what scripts write and people read.
//!
//! ```text
//! # folioswap-trace tick_ns=1 cpus=4
//! 1200 0 alloc 4 0:512 group=7 folio=3
//! 1350 1 free 16 0:512 cause=swap-in
//! 1360 1 fallback 4
//! 1400 - member 2
//! ```
//! A line has the time in ticks, the logical CPU (`-` for members), the event, its order (`alloc`,
//! `fallback`) or number of slots (`free`, `retain`, `reuse`), the first slot as device:offset, and
//! any of `group=`, `mask=` (hexadecimal), `folio=` and `cause=` (swap-in, exit, reclaim). Lines
//! may come in any order of time, as from the buffers of several processors; reading sorts them.
//! Lines about members (`member`, `end`, `fork`) count for the lines behind them, so a text with
//! such lines keeps its order. The earliest record's time becomes 0, unless the first line has an
//! `origin=`, from which times then count. Empty lines and further lines with `#` are comments.

use crate::traces::{Trace, cpu_of};
use folioswap_slots::CLUSTER_SLOTS;
use folioswap_trace::{CPUS_MAX, Cause, Details, Event, Header, Record, RecordError, TICK_MAX};
use std::fmt::Write as _;
use std::io::{self, BufRead, Write};

/// Bits of an offset in an entry.
const OFFSET_BITS: u32 = 51;
const HEAD: &str = "# folioswap-trace";

/// A line that is no record.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// The text cannot be read.
    #[error("line {line}: {source}")]
    Read {
        /// The line, from 1 on.
        line: usize,
        /// The reason.
        source: io::Error,
    },
    /// The first line is another one.
    #[error("line 1 must be `{HEAD} tick_ns=N [cpus=N] [origin=N]`")]
    Head,
    /// A word is missing or wrong.
    #[error("line {line}: {problem}, in {text:?}")]
    Line {
        /// The line, from 1 on.
        line: usize,
        /// What is wrong.
        problem: &'static str,
        /// The line's text.
        text: String,
    },
    /// The numbers are no record.
    #[error("line {line}: {source}, in {text:?}")]
    Record {
        /// The line, from 1 on.
        line: usize,
        /// The reason.
        source: RecordError,
        /// The line's text.
        text: String,
    },
    /// The trace has no allocations.
    #[error("the text has no allocations")]
    Empty,
}

/// Reads a text. A range of slots that crosses clusters becomes a record for each.
///
/// # Errors
/// [`TextError`] for the first line that is wrong.
pub fn read(text: impl BufRead) -> Result<Trace, TextError> {
    let mut lines = text.lines();
    let first = lines.next().transpose().map_err(|source| TextError::Read { line: 1, source })?;
    let Head { tick_ns, cpus, origin } = head(first.as_deref().unwrap_or("")).ok_or(TextError::Head)?;
    let mut all: Vec<(Record, Details)> = Vec::new();
    for (index, line) in lines.enumerate() {
        let number = index + 2;
        let text = line.map_err(|source| TextError::Read { line: number, source })?;
        let words = text.trim();
        if words.is_empty() || words.starts_with('#') {
            continue;
        }
        let problem = |problem| TextError::Line { line: number, problem, text: text.clone() };
        let (tick, event, details) = parse(words).map_err(problem)?;
        for event in pieces(event) {
            // The time is checked below, when the first record's is known.
            Record { tick: 0, event }.encode().map_err(|source| TextError::Record {
                line: number,
                source,
                text: text.clone(),
            })?;
            if cpus.is_some_and(|cpus| cpu_of(&event).is_some_and(|cpu| u32::from(cpu) >= cpus)) {
                return Err(problem("a CPU that the first line does not have"));
            }
            if origin.is_some_and(|origin| tick < origin) {
                return Err(problem("a time before the origin"));
            }
            all.push((Record { tick, event }, details));
        }
    }
    if all.iter().all(|(record, _)| cpu_of(&record.event).is_some()) {
        all.sort_by_key(|(record, _)| record.tick);
    }
    let start = origin.or(all.iter().map(|(record, _)| record.tick).min()).unwrap_or(0);
    for (record, _) in &mut all {
        record.tick = (record.tick - start).min(TICK_MAX);
    }
    if !all.iter().any(|(record, _)| matches!(record.event, Event::Alloc { .. } | Event::Fallback { .. })) {
        return Err(TextError::Empty);
    }
    let seen = all.iter().filter_map(|(record, _)| cpu_of(&record.event)).max().unwrap_or(0);
    let header = Header { tick_ns, cpus: cpus.unwrap_or(u32::from(seen) + 1) };
    let (records, details): (Vec<Record>, Vec<Details>) = all.into_iter().unzip();
    let known = details.iter().any(|details| *details != Details::default());
    Ok(Trace { header, records, details: if known { details } else { Vec::new() } })
}

/// What the first line says.
struct Head {
    tick_ns: u32,
    cpus: Option<u32>,
    origin: Option<u64>,
}

fn head(line: &str) -> Option<Head> {
    let (mut tick_ns, mut cpus, mut origin) = (None, None, None);
    for word in line.strip_prefix(HEAD)?.split_whitespace() {
        match word.split_once('=')? {
            ("tick_ns", value) => tick_ns = Some(value.parse().ok().filter(|ns| *ns >= 1)?),
            ("cpus", value) => cpus = Some(value.parse().ok().filter(|cpus| (1..=CPUS_MAX).contains(cpus))?),
            ("origin", value) => origin = Some(value.parse().ok()?),
            _ => return None,
        }
    }
    Some(Head { tick_ns: tick_ns?, cpus, origin })
}

fn parse(line: &str) -> Result<(u64, Event, Details), &'static str> {
    let mut words = line.split_whitespace();
    let mut word = |missing| words.next().ok_or(missing);
    let tick = word("a time is missing")?.parse().map_err(|_| "the time is no number")?;
    let cpu = word("a CPU is missing")?;
    let event = word("an event is missing")?;
    let number = word("a number is missing")?;
    if matches!(event, "member" | "end" | "fork") {
        let member = number.parse().map_err(|_| "the member is no number")?;
        let event = match event {
            "member" => Event::Member { member },
            "end" => Event::End { member },
            _ => Event::Fork { member },
        };
        return Ok((tick, event, details(words)?));
    }
    let cpu = cpu.parse().map_err(|_| "the CPU is no number")?;
    let entry = if event == "fallback" { 0 } else { entry(word("a slot is missing")?)? };
    let order = || number.parse::<u8>().ok().filter(|order| *order <= 9).ok_or("the order is none of 0 to 9");
    let slots = || number.parse::<u16>().map_err(|_| "the number of slots is no number");
    let event = match event {
        "alloc" => Event::Alloc { cpu, order: order()?, entry },
        "fallback" => Event::Fallback { cpu, order: order()? },
        "free" => Event::Free { cpu, slots: slots()?, entry },
        "retain" => Event::Retain { cpu, slots: slots()?, entry },
        "reuse" => Event::Reuse { cpu, slots: slots()?, entry },
        _ => return Err("an event other than alloc, fallback, free, retain, reuse, member, end and fork"),
    };
    Ok((tick, event, details(words)?))
}

/// The words behind the event.
fn details<'a>(words: impl Iterator<Item = &'a str>) -> Result<Details, &'static str> {
    let mut details = Details::default();
    for word in words {
        match word.split_once('=') {
            Some(("group", value)) => details.group = value.parse().map_err(|_| "the group is no number")?,
            Some(("mask", value)) => {
                details.mask = u32::from_str_radix(value, 16).map_err(|_| "the mask is not hexadecimal")?;
            }
            Some(("folio", value)) => details.folio = value.parse().map_err(|_| "the folio is no number")?,
            Some(("cause", value)) => {
                let cause = Cause::ALL.into_iter().find(|cause| cause.name() == value);
                details.cause = cause.ok_or("a cause other than swap-in, exit and reclaim")?;
            }
            _ => return Err("a word other than group=, mask=, folio= and cause="),
        }
    }
    Ok(details)
}

/// device:offset as an entry.
fn entry(text: &str) -> Result<u64, &'static str> {
    let wrong = "the slot is not device:offset";
    let (device, offset) = text.split_once(':').ok_or(wrong)?;
    let device: u64 = device.parse().ok().filter(|device| *device < 32).ok_or(wrong)?;
    let offset: u64 = offset.parse().ok().filter(|offset| *offset < 1 << OFFSET_BITS).ok_or(wrong)?;
    Ok(device << OFFSET_BITS | offset)
}

/// A range that crosses clusters, cut at their borders.
fn pieces(event: Event) -> Vec<Event> {
    let cluster = u64::from(CLUSTER_SLOTS);
    let (slots, entry) = match event {
        Event::Free { slots, entry, .. }
        | Event::Retain { slots, entry, .. }
        | Event::Reuse { slots, entry, .. } => (u64::from(slots), entry),
        _ => return vec![event],
    };
    if entry % cluster + slots <= cluster {
        return vec![event];
    }
    let mut all = Vec::new();
    let (mut at, end) = (entry, entry + slots);
    while at < end {
        let next = (at / cluster + 1) * cluster;
        let (entry, slots) = (at, (next.min(end) - at) as u16);
        all.push(match event {
            Event::Free { cpu, .. } => Event::Free { cpu, slots, entry },
            Event::Retain { cpu, .. } => Event::Retain { cpu, slots, entry },
            Event::Reuse { cpu, .. } => Event::Reuse { cpu, slots, entry },
            other => other,
        });
        at = next;
    }
    all
}

/// Writes a trace as text; [`read`] gives the same trace again.
///
/// # Errors
/// The error of `to`.
pub fn write(trace: &Trace, to: &mut impl Write) -> io::Result<()> {
    writeln!(to, "{HEAD} tick_ns={} cpus={} origin=0", trace.header.tick_ns, trace.header.cpus)?;
    for (index, record) in trace.records.iter().enumerate() {
        let mut line = format!("{} ", record.tick);
        let slot = |entry: u64| format!("{}:{}", entry >> OFFSET_BITS, entry & ((1 << OFFSET_BITS) - 1));
        line += &match record.event {
            Event::Alloc { cpu, order, entry } => format!("{cpu} alloc {order} {}", slot(entry)),
            Event::Fallback { cpu, order } => format!("{cpu} fallback {order}"),
            Event::Free { cpu, slots, entry } => format!("{cpu} free {slots} {}", slot(entry)),
            Event::Retain { cpu, slots, entry } => format!("{cpu} retain {slots} {}", slot(entry)),
            Event::Reuse { cpu, slots, entry } => format!("{cpu} reuse {slots} {}", slot(entry)),
            Event::Member { member } => format!("- member {member}"),
            Event::End { member } => format!("- end {member}"),
            Event::Fork { member } => format!("- fork {member}"),
        };
        if let Some(details) = trace.details.get(index) {
            let known = Details::default();
            let mut word = |word: std::fmt::Arguments<'_>| write!(line, " {word}").map_err(io::Error::other);
            if details.group != known.group {
                word(format_args!("group={}", details.group))?;
            }
            if details.mask != known.mask {
                word(format_args!("mask={:x}", details.mask))?;
            }
            if details.folio != known.folio {
                word(format_args!("folio={}", details.folio))?;
            }
            if details.cause != known.cause {
                word(format_args!("cause={}", details.cause.name()))?;
            }
        }
        writeln!(to, "{line}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
