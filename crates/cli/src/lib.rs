//! The command line of folioswap: one file for each subcommand, and printing.
//!
//! A run has three processes besides those that the program itself starts (`run.rs` draws them):
//! the *front*, which the user started and whose exit status is the program's (`front.rs`); the
//! *supervisor*, which owns everything that the members of the group share (crate
//! `folioswap-supervisor`); and CMD, the supervisor's child.

#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux")))]
compile_error!(
    "folioswap runs on Linux on x86_64 (6.8 or later) and aarch64 (6.10 or later): it depends on that kernel's userfaultfd"
);

mod agent;
mod balance;
mod bench;
mod cgroup;
mod cli;
mod container_kills;
mod delay;
mod device_name;
mod device_warnings;
mod doctor;
mod error;
mod folio_option;
mod front;
mod help;
mod host;
mod interrupt;
mod lab;
mod manual;
mod metrics;
mod mkswap;
mod mount;
mod operate;
mod run;
mod swap_tiers;
mod swapoff;
mod swapon;
mod top;

use clap::Parser;
use cli::{Cli, Command};
use folioswap_supervisor::processes::{descriptors, signals};

pub use folioswap_supervisor::STATUS_REFUSED;

/// Runs the command that the arguments ask for; returns the exit status.
pub fn main() -> i32 {
    let inherited = signals::Inherited::capture();
    descriptors::fill_standard();
    let mut words = std::env::args_os();
    if words.next().is_some_and(|program| mount::helper::is_helper(&program)) {
        // To mount(8) a status is a set of bits: 1 for a wrong call, 32 for a mount that failed.
        return match status_of(mount::helper::mount(&words.collect::<Vec<_>>())) {
            STATUS_REFUSED => 32,
            status => status,
        };
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Nothing can be done about a closed terminal.
            let _ = error.print();
            return if error.use_stderr() { STATUS_REFUSED } else { 0 };
        }
    };
    let result = match cli.command {
        Command::Run(arguments) => run::run(arguments, &inherited),
        Command::Advise(arguments) => run::advise(arguments, &inherited),
        Command::Help(arguments) => help::help(&arguments),
        Command::Swapon(arguments) => swapon::swapon(&arguments),
        Command::Mkswap(arguments) => mkswap::mkswap(&arguments),
        Command::Doctor(arguments) => doctor::doctor(&arguments),
        Command::Bench(arguments) => bench::bench(&arguments),
        Command::Lab(arguments) => lab::lab(&arguments),
        Command::Mount(arguments) => mount::mount(&arguments),
        Command::Umount(arguments) => mount::umount(&arguments),
        Command::Swapoff(arguments) => swapoff::swapoff(&arguments),
        Command::Balance(arguments) => balance::balance(&arguments),
        Command::Ps(arguments) => operate::ps::ps(&arguments),
        Command::Top(arguments) => top::top(&arguments),
        Command::Metrics(arguments) => metrics::metrics(&arguments),
        Command::Stats(arguments) => operate::stats::stats(&arguments),
        Command::Set(arguments) => operate::set::set(&arguments),
        Command::Freeze(arguments) => operate::change::freeze(&arguments),
        Command::Thaw(arguments) => operate::change::thaw(&arguments),
        Command::Completions(arguments) => manual::completions(&arguments),
        Command::Man(arguments) => manual::man(&arguments),
    };
    status_of(result)
}

/// The exit status of a command, whose error is printed.
fn status_of(result: Result<i32, error::Error>) -> i32 {
    result.unwrap_or_else(|error| {
        eprintln!("folioswap: {error}");
        error.status()
    })
}
