//! `folioswap help [TOPIC]`: the help of a subcommand, or of what several options have in common.

use crate::{
    cli::{Cli, HelpArguments},
    error::Error,
};
use clap::{Command, CommandFactory};
use folioswap_supervisor::suggestion;
use std::io::{Write, stdout};

/// How devices are written.
const DEVICES: &str = include_str!("devices.txt");
/// How folio sizes are written.
const SIZES: &str = include_str!("sizes.txt");
/// Environment and configuration files.
const CONFIGURATION: &str = include_str!("configuration.txt");

/// A topic that is no subcommand.
pub struct Topic {
    /// The word after `help`.
    pub name: &'static str,
    /// The name of its man page.
    pub page: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// What is printed.
    pub text: &'static str,
}

/// The topics.
pub const TOPICS: [Topic; 3] = [
    Topic { name: "devices", page: "folioswap-devices", about: "DEVICE, as --swap takes it", text: DEVICES },
    Topic { name: "sizes", page: "folioswap-sizes", about: "SIZE, and SIZES as --thp takes it", text: SIZES },
    Topic {
        name: "configuration",
        page: "folioswap-configuration",
        about: "environment variables, configuration files and profiles",
        text: CONFIGURATION,
    },
];

/// Prints the help.
///
/// # Errors
/// There is no such topic, or the output cannot be written.
pub fn help(arguments: &HelpArguments) -> Result<i32, Error> {
    if let [word] = &arguments.topic[..]
        && let Some(topic) = TOPICS.iter().find(|topic| topic.name == word)
    {
        stdout().write_all(topic.text.as_bytes()).map_err(Error::Output)?;
        return Ok(0);
    }
    let mut command = Cli::command();
    // Gives each subcommand its whole name.
    command.build();
    let mut at = &mut command;
    for word in &arguments.topic {
        let known: Vec<String> = known(at);
        at = at.find_subcommand_mut(word).ok_or_else(|| {
            let words: Vec<&str> = known.iter().map(String::as_str).collect();
            let meant = suggestion::did_you_mean(word, &words);
            Error::NoTopic { topic: word.clone(), meant, known: known.join(", ") }
        })?;
    }
    at.print_long_help().map_err(Error::Output)?;
    Ok(0)
}

/// The names that may stand here.
fn known(command: &Command) -> Vec<String> {
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
    let mut names: Vec<String> = shown.map(|command| command.get_name().to_owned()).collect();
    if command.get_name() == "folioswap" {
        names.extend(TOPICS.iter().map(|topic| topic.name.to_owned()));
    }
    names
}

#[cfg(test)]
mod tests;
