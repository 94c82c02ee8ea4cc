//! Fills memory with data that can be verified, reads it back in order and at random, and changes
//! it: `folioswap_bench::touch`, in one process and in several.
//!
//! `acc-touch --size 256M --kind mixed --phases fill,reread,random,verify [--threads N]
//! [--processes N] [--touches N] [--writes PERCENT] [--huge yes|no] [--seed N] [--timing]`
//!
//! The program prints one line that depends on nothing but the arguments. `--timing` adds one JSON
//! object per phase on standard error: MB/s, and for random touches p50, p99 and p99.9 in
//! nanoseconds.

use folioswap_acceptance::data::Kind;
use folioswap_acceptance::memory::parse_size;
use folioswap_acceptance::ratio::lz4_ratio;
use folioswap_bench::touch::{Advice, Options, touch};
use std::process::ExitCode;

struct Arguments {
    options: Options,
    processes: usize,
    timing: bool,
}

fn parse() -> Result<Arguments, String> {
    let mut parsed = Arguments { options: Options::default(), processes: 1, timing: false };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        if name == "--timing" {
            parsed.timing = true;
            continue;
        }
        let value = arguments.next().ok_or_else(|| format!("{name} lacks its value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{name} {value}: not a number"));
        let options = &mut parsed.options;
        match name.as_str() {
            "--size" => options.size = parse_size(&value)?,
            "--kind" => options.kind = Kind::parse(&value)?,
            "--phases" => options.phases = value.split(',').map(str::to_owned).collect(),
            "--threads" => options.threads = number()?.max(1) as usize,
            "--processes" => parsed.processes = number()?.max(1) as usize,
            "--touches" => options.touches = number()?,
            "--writes" => options.writes = number()?,
            "--huge" => {
                options.advice = Some(if value == "yes" { Advice::HugePages } else { Advice::NoHugePages });
            }
            "--seed" => options.seed = number()?,
            _ => return Err(format!("unknown option {name}")),
        }
    }
    Ok(parsed)
}

fn work(arguments: &Arguments, process: usize) -> Result<(), String> {
    touch(&arguments.options, process, |timing| {
        if arguments.timing {
            eprintln!("{}", serde_json::to_string(&timing).expect("finite numbers"));
        }
    })
}

fn main() -> ExitCode {
    let arguments = match parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("acc-touch: {error}");
            return ExitCode::from(2);
        }
    };
    let options = &arguments.options;
    if let [kind] = options.phases.as_slice()
        && kind == "ratio"
    {
        for block in [4096, 65536] {
            println!("{block} {:.3}", lz4_ratio(options.kind, block, 4096));
        }
        return ExitCode::SUCCESS;
    }
    let mut children = Vec::new();
    for process in 1..arguments.processes {
        // SAFETY: no other threads exist yet.
        match unsafe { libc::fork() } {
            0 => {
                let result = work(&arguments, process);
                if let Err(error) = &result {
                    eprintln!("acc-touch: process {process}: {error}");
                }
                std::process::exit(i32::from(result.is_err()));
            }
            -1 => panic!("fork: {}", std::io::Error::last_os_error()),
            pid => children.push(pid),
        }
    }
    let mut failed = false;
    if let Err(error) = work(&arguments, 0) {
        eprintln!("acc-touch: {error}");
        failed = true;
    }
    for pid in children {
        let mut status = 0;
        // SAFETY: waits for our own child.
        let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
        failed |= waited != pid || status != 0;
    }
    if failed {
        return ExitCode::FAILURE;
    }
    println!("ok {} bytes, {:?}, {}", options.size, options.kind, options.phases.join(" "));
    ExitCode::SUCCESS
}
