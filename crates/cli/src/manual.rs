//! Completions and man pages, generated from the one definition of the command line.

use crate::{
    cli::{Cli, CompletionsArguments, ManArguments},
    error::Error,
};
use clap::CommandFactory;
use std::io::stdout;

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
        Some(directory) => clap_mangen::generate_to(Cli::command(), directory),
    }
    .map_err(Error::Output)?;
    Ok(0)
}

#[cfg(test)]
mod tests;
