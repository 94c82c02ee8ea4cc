//! What a group says of itself to processes that look: its name, its program, since when it runs,
//! and its weight among groups. None of it decides anything in the group.

use super::wire;
use folioswap_group::seat::{WEIGHT_DEFAULT, WEIGHT_MAX};
use rustix::{fd::OwnedFd, io::Errno};
use serde::{Deserialize, Serialize};
use std::{
    ffi::OsString,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

/// The longest name of a group, in characters.
pub const NAME_MAX: usize = 64;
/// The characters of the command that are kept.
const COMMAND_MAX: usize = 4096;

/// The description of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// The name that the user gave, or that of the program.
    pub name: String,
    /// The program with its arguments, as one line; at most 4096 characters.
    pub command: String,
    /// When the group began, in seconds since 1970.
    pub started_unix: u64,
    /// The weight of the group among groups (`folioswap balance`), 1 to [`WEIGHT_MAX`].
    #[serde(default = "default_weight")]
    pub weight: u32,
}

/// The weight of groups that say nothing of one: those of earlier builds.
const fn default_weight() -> u32 {
    WEIGHT_DEFAULT
}

/// Why a name was refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NameError {
    /// The name has a character that is not allowed, none at all, or too many.
    #[error(
        "a name has 1 to 64 letters, digits, `.`, `_` and `-`, and begins with a letter or a digit, e.g. train-7"
    )]
    Characters,
    /// The name would be taken for a process id.
    #[error("a name of digits alone would be taken for a process id; add a letter, e.g. job{0}")]
    Digits(String),
}

/// Checks the name of a group.
///
/// # Errors
/// [`NameError`].
pub fn parse_name(text: &str) -> Result<String, NameError> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let begins_well = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    if !begins_well || text.len() > NAME_MAX || !text.chars().all(is_allowed) {
        Err(NameError::Characters)
    } else if text.chars().all(|c| c.is_ascii_digit()) {
        Err(NameError::Digits(text.to_owned()))
    } else {
        Ok(text.to_owned())
    }
}

impl Description {
    /// Describes a group that begins now. Without a name it has that of its program, without the
    /// directory.
    pub fn new(name: Option<&str>, command: &[OsString]) -> Self {
        let program = command.first().map(|program| Path::new(program).file_name().unwrap_or(program));
        let program = || program.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Description {
            name: name.map_or_else(program, str::to_owned),
            command: words.join(" ").chars().take(COMMAND_MAX).collect(),
            started_unix: started.as_secs(),
            weight: WEIGHT_DEFAULT,
        }
    }

    /// The same with another weight.
    pub const fn with_weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// A descriptor that carries the description.
    ///
    /// # Errors
    /// Of memfd_create(2) and write(2).
    pub fn to_text(&self) -> Result<OwnedFd, Errno> {
        let text = serde_json::to_vec(self).map_err(|_| Errno::INVAL)?;
        wire::text(&text)
    }

    /// The inverse of [`Description::to_text`]. Another process may have written the text: all its
    /// control characters are gone, it is as long as at most, and the weight is one.
    ///
    /// # Errors
    /// `EPROTO` for a text that is no description.
    pub fn of_text(text: &OwnedFd) -> Result<Self, Errno> {
        let text = wire::text_in(text)?;
        let mut description: Description = serde_json::from_slice(&text).map_err(|_| Errno::PROTO)?;
        for (line, most) in [(&mut description.name, NAME_MAX), (&mut description.command, COMMAND_MAX)] {
            let is_shown = |c: &char| !c.is_control();
            *line =
                line.chars().map(|c| if c == '\n' || c == '\t' { ' ' } else { c }).filter(is_shown).collect();
            *line = line.chars().take(most).collect();
        }
        description.weight = description.weight.clamp(1, WEIGHT_MAX);
        Ok(description)
    }
}

#[cfg(test)]
mod tests;
