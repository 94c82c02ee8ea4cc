//! Makes inputs, has them tried in a process of its own, and keeps what fails.
//!
//! Inputs are the kept ones of `tests/corpus/messages`, changes of them, and random bytes. An input
//! after which something was seen that had not been seen before is changed further.

use super::{
    heap,
    journal::{Journal, Script},
    pool::Pool,
    puppets::Puppets,
    world::{Devices, World, open_descriptors, wait_until_open},
};
use crate::processes::proc;
use folioswap_test_support::{environment, random::Random};
use std::{
    collections::HashSet,
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

/// Seconds of random inputs, and the seed of them; the seed is printed.
const SECONDS: &str = "FOLIOSWAP_FUZZ_SECONDS";
const SEED: &str = "FOLIOSWAP_FUZZ_SEED";
/// The most inputs, if so many are tried before the time is up.
const EXECUTIONS: &str = "FOLIOSWAP_FUZZ_EXECUTIONS";
/// A file of inputs to be tried instead.
const INPUT: &str = "FOLIOSWAP_FUZZ_INPUT";
/// The journal of the process that tries the inputs.
const JOURNAL: &str = "FOLIOSWAP_FUZZ_JOURNAL";

/// How long one input may take. Most take less than a millisecond; a busy machine may not run the
/// process for a while.
const PATIENCE: Duration = Duration::from_secs(30);
/// The random inputs that one supervisor gets.
const SCRIPT: usize = 400;
/// The most bytes of an input, and the most inputs that are changed further.
const INPUT_MAX: usize = 600;
const POOL_MAX: usize = 4096;
/// The most pairs of things that were seen.
const SEEN_MAX: usize = 1 << 16;
/// Bytes of the heap that a supervisor may leave behind, for what the first one initialises.
const LEFT_MAX: usize = 4 << 10;
/// The resident memory by which this process may grow after its first supervisors.
const RESIDENT_MAX: u64 = 32 << 20;

/// Runs the campaign that the environment asks for.
pub fn run() {
    let directory = env::temp_dir().join(format!("folioswap-messages-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory");
    let seed = environment::number(SEED, Random::fresh_seed());
    println!("{SEED}={seed}, {} s", environment::number(SECONDS, 5));
    let input = env::var_os(INPUT).map(PathBuf::from);
    let tried = Trial::of(&directory, seed, input.as_deref()).end();
    if let Err(failed) = tried {
        // The last input may fail alone, or only after those before it.
        let alone = kept(seed, &failed.journal.last_alone());
        let is_alone = Trial::of(&directory, seed, Some(&alone)).end().is_err();
        let file = if is_alone { alone } else { kept(seed, &failed.journal.script()) };
        let _ = fs::remove_dir_all(&directory);
        panic!("{}; try it again with {INPUT}={}", failed.why, file.display());
    }
    fs::remove_dir_all(&directory).expect("removed");
}

/// Writes inputs that fail into a file, and returns its name.
fn kept(seed: u64, script: &Script) -> PathBuf {
    let path = env::temp_dir().join(format!("folioswap-messages-{seed}-{}.input", script.inputs.len()));
    fs::write(&path, script.bytes()).expect("written");
    path
}

/// A process that tries inputs.
struct Trial {
    process: Child,
    journal: &'static Journal,
    /// What it prints.
    output: PathBuf,
}

struct Failed {
    why: String,
    journal: &'static Journal,
}

impl Trial {
    fn of(directory: &Path, seed: u64, input: Option<&Path>) -> Self {
        let journal = directory.join("journal");
        // Each trial has its own: the last one's may still be wanted.
        let _ = fs::remove_file(&journal);
        let mut command = Command::new(env::current_exe().expect("known"));
        command.args(["supervisor::tests::trial", "--exact", "--nocapture"]);
        command.env(JOURNAL, &journal).env(SEED, seed.to_string()).env_remove(INPUT);
        if let Some(input) = input {
            command.env(INPUT, input);
        }
        let (journal, output) = (Journal::of_file(&journal), directory.join("output"));
        let file = fs::File::create(&output).expect("a file");
        command.stdin(Stdio::null()).stderr(file.try_clone().expect("duplicated")).stdout(file);
        Trial { process: command.spawn().expect("started"), journal, output }
    }

    /// Waits for the end of the trial.
    fn end(mut self) -> Result<(), Failed> {
        let (mut seen, mut since) = (0, Instant::now());
        let why = loop {
            match self.process.try_wait().expect("our child") {
                Some(status) if status.success() => {
                    self.show(|line| line.contains("a second"));
                    return Ok(());
                }
                Some(status) => break describe(status),
                None => {}
            }
            let executions = self.journal.executions.load(Relaxed);
            if executions != seen {
                (seen, since) = (executions, Instant::now());
            } else if since.elapsed() > PATIENCE {
                self.process.kill().expect("our child");
                self.process.wait().expect("our child");
                break format!("an input took more than {} s", PATIENCE.as_secs());
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        self.show(|_| true);
        Err(Failed { why, journal: self.journal })
    }

    /// Prints lines of the output.
    fn show(&self, wanted: impl Fn(&str) -> bool) {
        let text = fs::read(&self.output).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        text.lines().filter(|line| wanted(line)).for_each(|line| println!("| {line}"));
    }
}

fn describe(status: ExitStatus) -> String {
    format!("the process that tried inputs has ended: {status}")
}

/// Tries the inputs that the environment asks for.
pub fn try_inputs() {
    let Some(journal) = env::var_os(JOURNAL).map(PathBuf::from) else { return };
    proc::become_subreaper();
    let scratch = journal.parent().expect("a directory").join("scratch");
    fs::create_dir_all(&scratch).expect("a directory");
    let mut trials = Trials {
        journal: Journal::of_file(&journal),
        puppets: Puppets::new(),
        pool: Pool::new(&scratch),
        resident: 0,
        messages: 0,
    };
    if let Some(input) = env::var_os(INPUT) {
        trials.try_script(&Script::of_bytes(&fs::read(input).expect("the input")));
    } else {
        let begun = Instant::now();
        trials.random_ones(&kept_inputs(), environment::number(SEED, 1));
        let (seconds, executions) = (begun.elapsed().as_secs_f64(), trials.journal.executions.load(Relaxed));
        println!(
            "{executions} inputs, {:.0} a second, with {} messages in {seconds:.1} s",
            executions as f64 / seconds,
            trials.messages
        );
    }
    trials.puppets.end();
}

/// The kept inputs.
fn kept_inputs() -> Vec<Script> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/messages");
    let files = fs::read_dir(directory).expect("the kept inputs").flatten();
    let mut paths: Vec<PathBuf> = files.map(|file| file.path()).collect();
    paths.sort();
    paths.iter().map(|path| Script::of_bytes(&fs::read(path).expect("read"))).collect()
}

struct Trials {
    journal: &'static Journal,
    puppets: Puppets,
    pool: Pool,
    /// Resident memory after the first random inputs.
    resident: u64,
    /// Messages that were sent.
    messages: u64,
}

impl Trials {
    /// Begins a group, has `inputs` tried there, and ends it; it leaves nothing behind.
    fn in_a_group(&mut self, settings: u8, inputs: impl FnOnce(&'static Journal, &mut World<'_>)) {
        let (descriptors, bytes) = (open_descriptors(), heap::bytes_in_use());
        self.journal.begin(settings);
        let mut world = World::new(settings, &mut self.puppets, &self.pool);
        inputs(self.journal, &mut world);
        self.messages += world.messages;
        let devices = world.end();
        wait_until_open(descriptors);
        let left = heap::bytes_in_use().saturating_sub(bytes);
        if devices == Devices::Same && self.resident > 0 {
            assert!(left <= LEFT_MAX, "{left} bytes were left behind");
        }
    }

    fn try_script(&mut self, script: &Script) {
        self.in_a_group(script.settings, |journal, world| {
            for input in &script.inputs {
                journal.note(input);
                world.try_input(input);
            }
        });
    }

    /// Tries the kept inputs, and then others until the time is up.
    fn random_ones(&mut self, kept: &[Script], seed: u64) {
        let until = Instant::now() + Duration::from_secs(environment::number(SECONDS, 5));
        let most = environment::number(EXECUTIONS, usize::MAX);
        kept.iter().for_each(|script| self.try_script(script));
        let mut choice = Choice::new(seed, kept);
        let is_over = |journal: &Journal| Instant::now() >= until || journal.executions.load(Relaxed) >= most;
        while !is_over(self.journal) {
            self.in_a_group(choice.random.next() as u8, |journal, world| {
                for _ in 0..SCRIPT {
                    if is_over(journal) || !journal.has_room() {
                        break;
                    }
                    let input = choice.next();
                    journal.note(&input);
                    let seen = world.try_input(&input);
                    choice.learn(&input, &seen);
                }
            });
            let resident = proc::memory(std::process::id()).expect("alive").anonymous;
            if self.resident == 0 {
                self.resident = resident;
            }
            assert!(resident < self.resident + RESIDENT_MAX, "{resident} bytes, {} at first", self.resident);
        }
    }
}

/// The choice of the next input. It allocates all of its memory at its start, so that what the
/// supervisor leaves behind can be told.
struct Choice {
    random: Random,
    pool: Vec<Kept>,
    /// Pairs of things that were seen one after the other.
    seen: HashSet<(u32, u32)>,
}

/// An input that is changed further.
#[derive(Clone, Copy)]
struct Kept {
    bytes: [u8; INPUT_MAX],
    length: usize,
}

impl Kept {
    fn of(input: &[u8]) -> Self {
        let (mut bytes, length) = ([0; INPUT_MAX], input.len().min(INPUT_MAX));
        bytes[..length].copy_from_slice(&input[..length]);
        Kept { bytes, length }
    }
}

impl Choice {
    fn new(seed: u64, kept: &[Script]) -> Self {
        let mut pool = Vec::with_capacity(POOL_MAX);
        pool.extend(kept.iter().flat_map(|script| &script.inputs).map(|input| Kept::of(input)));
        Choice { random: Random::new(seed.max(1)), pool, seen: HashSet::with_capacity(SEEN_MAX) }
    }

    fn next(&mut self) -> Vec<u8> {
        if self.pool.is_empty() || self.random.below(8) == 0 {
            let length = self.random.below(INPUT_MAX as u64) as usize;
            return (0..length).map(|_| self.byte()).collect();
        }
        let mut input = self.some();
        for _ in 0..self.random.below(4) {
            input.extend(self.some());
        }
        for _ in 0..=self.random.below(8) {
            self.change(&mut input);
        }
        input.truncate(INPUT_MAX);
        input
    }

    fn byte(&mut self) -> u8 {
        (self.random.next() >> 24) as u8
    }

    fn some(&mut self) -> Vec<u8> {
        let Kept { bytes, length } = &self.pool[self.random.below(self.pool.len() as u64) as usize];
        bytes[..*length].to_vec()
    }

    /// Changes a random part of an input.
    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.random.below(input.len() as u64 + 1) as usize;
        let end = (at + 1 + self.random.below(16) as usize).min(input.len());
        match self.random.below(6) {
            0 => {
                let bit = self.random.below(8);
                input[at..end].iter_mut().take(1).for_each(|byte| *byte ^= 1 << bit);
            }
            1 => {
                let value = self.byte();
                input[at..end].iter_mut().take(1).for_each(|byte| *byte = value);
            }
            2 => drop(input.drain(at..end)),
            3 => {
                let again = input[at..end].to_vec();
                input.splice(at..at, again);
            }
            4 => {
                let new: Vec<u8> = (0..1 + self.random.below(6)).map(|_| self.byte()).collect();
                input.splice(at..at, new);
            }
            _ => {
                let other = self.some();
                let from = self.random.below(other.len() as u64 + 1) as usize;
                let length = 1 + self.random.below(40) as usize;
                input.splice(at..at, other.into_iter().skip(from).take(length));
            }
        }
    }

    /// Keeps an input after which something new was seen.
    fn learn(&mut self, input: &[u8], seen: &[u32]) {
        let before = self.seen.len();
        for pair in seen.iter().copied().zip(seen.iter().copied().skip(1)) {
            if self.seen.len() < SEEN_MAX {
                self.seen.insert(pair);
            }
        }
        if self.seen.len() > before && self.pool.len() < POOL_MAX {
            self.pool.push(Kept::of(input));
        }
    }
}
