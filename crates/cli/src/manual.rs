//! Completions and man pages, generated from the one definition of the command line.

use crate::{
    cli::{Cli, CompletionsArguments, ManArguments},
    error::Error,
    help::TOPICS,
};
use clap::{Command, CommandFactory};
use std::{
    fs::File,
    io::{self, stdout},
    path::Path,
};

/// Prints a shell's completion script.
///
/// # Errors
/// When the output cannot be written.
pub fn completions(arguments: &CompletionsArguments) -> Result<i32, Error> {
    clap_complete::generate(arguments.shell, &mut Cli::command(), "folioswap", &mut stdout());
    Ok(0)
}

/// Prints folioswap(1), or writes a page for it and for each command.
///
/// # Errors
/// When the output cannot be written.
pub fn man(arguments: &ManArguments) -> Result<i32, Error> {
    match &arguments.directory {
        None => clap_mangen::Man::new(Cli::command()).render(&mut stdout()),
        Some(directory) => {
            clap_mangen::generate_to(Cli::command(), directory).and_then(|()| topics(directory))
        }
    }
    .map_err(Error::Output)?;
    Ok(0)
}

/// Writes a page for each topic of `folioswap help`.
fn topics(directory: &Path) -> io::Result<()> {
    for topic in TOPICS {
        let command = Command::new(topic.page).about(topic.about).after_help(topic.text);
        let page = clap_mangen::Man::new(command).section("7");
        let mut file = File::create(directory.join(format!("{}.7", topic.page)))?;
        page.render_title(&mut file)?;
        page.render_name_section(&mut file)?;
        page.render_extra_section(&mut file)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
