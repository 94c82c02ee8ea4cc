//! The command line of folioswap: `run` and its supervisor, `mount`, `mkswap`, `doctor`, `swapon`, `bench`, `lab`.
//!
//! A run has three processes besides what the program itself starts (`run.rs` draws them): the *front*, which the user
//! started and whose exit status is the program's (`front`); the *supervisor*, which owns what the members of the group
//! share and stays until the last of them has ended (`supervisor`); and CMD, the supervisor's child (`child`).

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!(
    "folioswap runs on x86_64 Linux only (6.8 or later): it depends on that kernel's userfaultfd and on x86_64 page sizes"
);

mod agent;
mod bench;
mod cgroup;
mod child;
mod cli;
mod descriptors;
mod device_name;
mod devices;
mod doctor;
mod elf;
mod error;
mod folio_option;
mod front;
mod groups;
mod host;
mod lab;
mod limits;
mod link;
mod manual;
mod mkswap;
mod mount;
mod process;
mod program;
mod report;
mod run;
mod shared;
mod signals;
mod size;
mod supervisor;
mod swap_option;
pub mod swapoff;
mod swapon;
mod table;
mod userfault;
#[doc(hidden)]
pub mod wire;

use clap::Parser;
use cli::{Cli, Command};

/// Exit status of our own refusals, as in env(1).
pub const STATUS_REFUSED: i32 = 125;

/// Runs the command that the arguments ask for; returns the exit status.
pub fn main() -> i32 {
    let inherited = signals::Inherited::capture();
    descriptors::fill_standard();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Nothing can be done about a closed terminal.
            let _ = error.print();
            return if error.use_stderr() { STATUS_REFUSED } else { 0 };
        }
    };
    let result = match cli.command {
        Command::Run(arguments) => run::run(&arguments, &inherited),
        Command::Swapon(arguments) => swapon::swapon(&arguments),
        Command::Mkswap(arguments) => mkswap::mkswap(&arguments),
        Command::Doctor(arguments) => doctor::doctor(&arguments),
        Command::Bench(arguments) => bench::bench(&arguments),
        Command::Lab(arguments) => lab::lab(&arguments),
        Command::Mount(arguments) => mount::mount(&arguments),
        Command::Umount(arguments) => mount::umount(&arguments),
        Command::Swapoff(arguments) => swapoff::swapoff(&arguments),
        Command::Completions(arguments) => manual::completions(&arguments),
        Command::Man(arguments) => manual::man(&arguments),
    };
    result.unwrap_or_else(|error| {
        eprintln!("folioswap: {error}");
        error.status()
    })
}
