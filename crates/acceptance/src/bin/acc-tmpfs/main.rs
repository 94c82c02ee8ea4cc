//! Random operations on files of a directory, by several processes, each against an oracle in its
//! own memory.
//!
//! `acc-tmpfs DIR --seconds N [--processes N] [--seed N] [--size BYTES]`
//!
//! `acc-tmpfs fill|check|map FILE MEBIBYTES SEED` writes a file, verifies every byte of it with
//! read(2), or verifies it through a mapping.
//!
//! Each process has files of its own, whose contents, sizes and names it knows, and stripes of one
//! file that all share. Its operations are write(2), read(2), stores and loads through shared
//! mappings (kept while other operations go on), private mappings, ftruncate, fallocate, hole
//! punching, SEEK_DATA and SEEK_HOLE, copy_file_range, rename, link, unlink while open, and fsync.
//! Every difference is reported with the seed and ends the process with status 1.

mod mapping;
mod process;
mod random;
mod whole_file;

use process::Process;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;
use whole_file::whole_file;

fn main() -> ExitCode {
    let whole: Vec<String> = std::env::args().skip(1).collect();
    if let [action @ ("fill" | "check" | "map"), path, blocks, seed] =
        &whole.iter().map(String::as_str).collect::<Vec<_>>()[..]
    {
        let number = |text: &str| text.parse().expect("a number");
        return match whole_file(action, path, number(blocks), number(seed)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{action} {path}: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let mut words = std::env::args().skip(1);
    let usage = "acc-tmpfs DIR --seconds N [--processes N] [--seed N] [--size BYTES]";
    let directory = PathBuf::from(words.next().expect(usage));
    let (mut seconds, mut processes, mut seed, mut size, mut index) = (10, 4, 1, 4 << 20, None);
    while let Some(word) = words.next() {
        let value: u64 = words.next().and_then(|value| value.parse().ok()).expect(usage);
        match word.as_str() {
            "--seconds" => seconds = value,
            "--processes" => processes = value as usize,
            "--seed" => seed = value,
            "--size" => size = value as usize,
            "--index" => index = Some(value as usize),
            _ => panic!("{usage}"),
        }
    }
    if let Some(index) = index {
        let own_seed = seed * 1000 + index as u64;
        let done = Process::new(&directory, index, processes, own_seed, size)
            .and_then(|mut process| process.run(Duration::from_secs(seconds)));
        return match done {
            Ok(steps) => {
                println!("process {index}: {steps} steps");
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("process {index}, seed {seed}: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let me = std::env::current_exe().expect("own path");
    let children: Vec<_> = (0..processes)
        .map(|index| {
            let numbers =
                [seconds, processes as u64, seed, size as u64, index as u64].map(|number| number.to_string());
            let names = ["--seconds", "--processes", "--seed", "--size", "--index"];
            let mut command = Command::new(&me);
            command.arg(&directory);
            names.iter().zip(&numbers).for_each(|(name, number)| {
                command.arg(name).arg(number);
            });
            command.spawn().expect("start myself")
        })
        .collect();
    let all = children.into_iter().map(|mut child| child.wait().expect("wait").success());
    // The fold waits for every process, where `all` would stop at the first failure.
    if all.fold(true, |all, one| all & one) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
