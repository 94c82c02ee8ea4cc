//! The command line of `folioswap bench`.

use crate::lab::arguments::OutputArguments;
use crate::run::arguments::ScopeArgument;
use clap::{Args, Parser, Subcommand, ValueEnum};
use folioswap_bench::comparison::Terms;
use folioswap_bench::data::Kind;
use folioswap_bench::touch::Advice;
use folioswap_peer::FolioSizes;
use folioswap_supervisor::size;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  folioswap bench touch --quick
        does it work, and how fast is it here?
  sudo folioswap bench touch --peer kernel
        the same program, data and limit under the kernel's zram, with each of
        its settings of huge pages
  sudo folioswap bench usemem --init-time -O -y -x -n 4 1G --limit 1G --peer \\
      kernel
        the program of the published figures: throughput, and processor time
        for each page that goes out
  sudo folioswap bench hot-set --peer kernel
        does memory that is touched again and again stay while much more is
        gone through once?
  sudo folioswap bench sort --peer kernel
        GNU sort within 150, 100 and 60 MiB, where the kernel begins to kill
        it";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct BenchArguments {
    #[command(subcommand)]
    pub command: BenchCommand,
}

#[derive(Subcommand)]
pub enum BenchCommand {
    /// Fill memory, read it back in order, in strides and at random; what is read is checked
    Touch(TouchArguments),
    /// Several processes write memory once, as vm-scalability's usemem does, with that program's
    /// options
    Usemem(UsememArguments),
    /// A hot set is touched at random while much more memory is gone through once: how much of it
    /// stays
    HotSet(HotSetArguments),
    /// GNU sort within several limits: how long it takes, and whether it comes to its end
    Sort(SortArguments),
    /// One run (what `touch` starts)
    #[command(hide = true)]
    Worker(WorkerArguments),
    /// One run (what `usemem` starts)
    #[command(hide = true)]
    UsememWorker(UsememWorkerArguments),
    /// One run (what `hot-set` starts)
    #[command(hide = true)]
    HotSetWorker(HotSetWorkerArguments),
    /// One run (what `sort` starts)
    #[command(hide = true)]
    SortWorker(SortWorkerArguments),
}

/// Who is compared, and how often.
#[derive(Args)]
pub struct TermsArguments {
    /// Runs of each engine [default: 3; quick: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// What folioswap's limit counts; the kernel does not charge what zram takes
    #[arg(long, value_enum, default_value_t = ScopeArgument::Resident)]
    pub memory_scope: ScopeArgument,
    /// Let the same program run once more under folioswap, with these options of `folioswap run`;
    /// repeatable
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true, value_parser = run_options)]
    pub run_with: Vec<RunOptions>,
    /// Let the same program run under the kernel's own swap too
    #[arg(long, value_enum)]
    pub peer: Option<PeerChoice>,
    /// The kernel's folio sizes, each a run of its own
    #[arg(
        long,
        value_name = "SIZES,...",
        value_delimiter = ',',
        value_enum,
        default_value = "4k,64k,2m,all",
        requires = "peer"
    )]
    pub thp: Vec<SizesChoice>,
}

impl TermsArguments {
    /// The terms of a comparison within `limit` bytes of resident memory, with `rounds` runs of
    /// each engine unless the user asked for another number.
    pub fn terms(&self, limit: u64, rounds: u32) -> Terms {
        let kernel = match self.peer {
            Some(PeerChoice::Kernel) => self.thp.iter().map(|sizes| (*sizes).into()).collect(),
            None => Vec::new(),
        };
        Terms {
            limit,
            rounds: self.rounds.unwrap_or(rounds),
            scope: self.memory_scope.into(),
            variants: self.run_with.iter().map(|options| options.0.clone()).collect(),
            kernel,
        }
    }
}

/// Options of `folioswap run`, as separate words.
#[derive(Clone, Debug)]
pub struct RunOptions(Vec<String>);

/// Reads options of `folioswap run`, and refuses those that `run` would refuse, before anything is
/// measured.
fn run_options(text: &str) -> Result<RunOptions, String> {
    let options: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    if options.is_empty() {
        return Err("no option of `folioswap run`".to_owned());
    }
    // The options that every comparison gives come first.
    let given = ["folioswap", "run", "--memory", "1G", "--memory-scope", "total", "--stats-json", "file"];
    let words = given.into_iter().chain(options.iter().map(String::as_str)).chain(["--", "program"]);
    let refused = |error: clap::Error| {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or("").trim_start_matches("error: ");
        format!("`folioswap run` would refuse this: {first}")
    };
    crate::cli::Cli::try_parse_from(words).map(|_| RunOptions(options)).map_err(refused)
}

#[derive(Args)]
#[command(after_help = "\
One program fills memory with data that LZ4 compresses as their name says, and
touches it phase by phase, within a limit: under folioswap, and with --peer
kernel under the kernel's own swap (memory cgroup and zram with LZ4), which
needs root. All engines take turns, round after round; medians are shown, and
the fastest and slowest run. The first word of every page that is read is
checked, in phase verify, the last one unless you say otherwise, all of it.
What is set up on the machine (zram device, swap, cgroup, settings of huge
pages) is put back, also after Ctrl-C; what a kill -9 leaves behind the next
run removes.

PHASE is fill, rewrite, reread, verify (each also as fill-down, ...), strided,
random, islands or changes: in order, at random and in order again, each timed
by itself. Other changes are measured by naming phases in turn: --phases
fill,random,strided,random.

For each phase the table has its wall time and how long touches took (a page's
first access in that phase; timing one costs what the first lines say), and
what part of the resident memory is in huge pages when it ends; then pages out
and in, and what folios of each size came to: how many went out and came back
whole, how many fell back to smaller ones.

Examples:
  folioswap bench touch --quick
  folioswap bench touch --size 2G --limit 512M --kind 2:1,incompressible
  folioswap bench touch --peer kernel --thp 64k --phases fill,changes \\
      --rounds 5
  folioswap bench touch --peer kernel --thp 2m --phases fill,reread --advise \\
      hugepage
        what part comes back as huge pages
  folioswap bench touch --run-with \"--swap-max 0\" \\
      --run-with \"--swap ram,size=1G\"
        options of `folioswap run`, a line each
  folioswap bench touch --peer kernel --json > touch.json
  folioswap bench touch --peer kernel --plot touch.svg")]
pub struct TouchArguments {
    #[command(flatten)]
    pub output: OutputArguments,
    /// Memory that the program fills [default: 512M; quick: 128M]
    #[arg(long, value_name = "SIZE", value_parser = size::parse_limit)]
    pub size: Option<u64>,
    /// Resident memory that it may have [default: a quarter of its size]
    #[arg(long, value_name = "SIZE", value_parser = size::parse_limit)]
    pub limit: Option<u64>,
    /// Contents of the memory
    #[arg(long, value_name = "KIND,...", value_delimiter = ',', value_enum, default_value = "2:1,3:1")]
    pub kind: Vec<KindArgument>,
    /// What is done, in this order
    #[arg(long, value_name = "PHASE,...", value_delimiter = ',', value_parser = phase, default_value = "fill,reread,strided,random,changes,verify")]
    pub phases: Vec<String>,
    /// Threads of the program, each with a part of the memory
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: u32,
    /// Random touches [default: 20000; quick: 5000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub touches: Option<u64>,
    /// Percent of the random touches that write
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=100))]
    pub writes: u64,
    /// Let the program ask for huge pages, or for none (madvise), instead of saying nothing of them
    #[arg(long, value_name = "ADVICE", value_enum)]
    pub advise: Option<AdviceArgument>,
    #[command(flatten)]
    pub terms: TermsArguments,
}

/// What `usemem` is asked.
#[derive(Args)]
pub struct UsememOptions {
    /// Processes
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub nproc: u32,
    /// Bytes from one access to the next, a multiple of 8
    #[arg(short = 'j', long, value_name = "BYTES", default_value_t = 8, value_parser = step)]
    pub step: usize,
    /// Access random places
    #[arg(short = 'R', long)]
    pub random: bool,
    /// Begin when all processes have allocated
    #[arg(short = 'y', long)]
    pub sync_rw: bool,
    /// Free when all processes have ended
    #[arg(short = 'x', long)]
    pub sync_free: bool,
    /// Map anonymous memory (it always does)
    #[arg(short = 'O', long)]
    pub anonymous: bool,
    /// The time before the first access does not count
    #[arg(long)]
    pub init_time: bool,
    /// Not of usemem: read everything again afterwards, and compare
    #[arg(long)]
    pub check: bool,
}

#[derive(Args)]
#[command(after_help = "\
Each process writes a word that holds its own index every --step bytes, in
order or at random places: the bytes that vm-scalability's usemem writes.
Under folioswap, and with --peer kernel under the kernel's own swap, as
`folioswap bench touch --help` says.

Examples:
  folioswap bench usemem --quick
  folioswap bench usemem --init-time -O -y -x -n 4 1G --limit 1G --peer kernel
  folioswap bench usemem --init-time -O -y -x -n 2 -R 256M --limit 256M -j \\
      4096 --peer kernel --thp 4k,all")]
pub struct UsememArguments {
    /// Memory of each process [default: 512M; quick: 64M]
    #[arg(value_name = "SIZE", value_parser = size::parse_limit)]
    pub size: Option<u64>,
    #[command(flatten)]
    pub usemem: UsememOptions,
    #[command(flatten)]
    pub output: OutputArguments,
    /// Resident memory that all processes may have together [default: half of what they use]
    #[arg(long, value_name = "SIZE", value_parser = size::parse_limit)]
    pub limit: Option<u64>,
    #[command(flatten)]
    pub terms: TermsArguments,
}

/// One run; the size is in bytes.
#[derive(Args)]
pub struct UsememWorkerArguments {
    pub size: u64,
    #[command(flatten)]
    pub usemem: UsememOptions,
}

#[derive(Args)]
#[command(after_help = "\
The program fills a hot set, then goes through other memory once in order,
writing it, and once more, reading it. After every 16 pages it touches random
pages of the hot set, so many for each page of the scan. A memory manager that
tells hot from cold keeps the hot set; one that goes by order of use alone
keeps it the less the fewer touches there are. What a touch needed is counted,
not guessed from its time. Under folioswap, and with --peer kernel under the
kernel's own swap, as `folioswap bench touch --help` says.

Examples:
  folioswap bench hot-set --quick
  folioswap bench hot-set --limit 256M --peer kernel
  folioswap bench hot-set --touches-per-page 1 --peer kernel --thp 4k,64k
        fewer signs of what is hot
  folioswap bench hot-set --hot 96M --limit 128M --scan 4G")]
pub struct HotSetArguments {
    #[command(flatten)]
    pub output: OutputArguments,
    /// Resident memory that the program may have [default: 128M; quick: 16M]
    #[arg(long, value_name = "SIZE", value_parser = size::parse_limit)]
    pub limit: Option<u64>,
    /// The hot set [default: half of the limit]
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub hot: Option<u64>,
    /// What is gone through once [default: 8 times the limit]
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub scan: Option<u64>,
    /// Touches of the hot set for each page of the scan
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub touches_per_page: u64,
    /// Contents of the memory
    #[arg(long, value_name = "KIND,...", value_delimiter = ',', value_enum, default_value = "2:1")]
    pub kind: Vec<KindArgument>,
    #[command(flatten)]
    pub terms: TermsArguments,
}

/// One run; the sizes are bytes.
#[derive(Args)]
pub struct HotSetWorkerArguments {
    #[arg(long)]
    pub hot: u64,
    #[arg(long)]
    pub scan: u64,
    #[arg(long)]
    pub touches_per_page: u64,
    #[arg(long, value_parser = Kind::parse)]
    pub kind: Kind,
}

#[derive(Args)]
#[command(after_help = "\
The installed sort (GNU coreutils) sorts a text that is always the same,
within each limit in turn. Its output is compared with that of the first run
without a limit; a run that is killed, or whose output is another, has failed,
and the others' times are shown. The text is a file without a name in
/var/tmp. Without a limit sort takes about 118 bytes for each line. Under
folioswap, and with --peer kernel under the kernel's own swap, as `folioswap
bench touch --help` says.

Examples:
  folioswap bench sort --quick
  folioswap bench sort --peer kernel --rounds 5
  folioswap bench sort --lines 5000000 --limit 400M,200M --peer kernel --thp \\
      4k")]
pub struct SortArguments {
    #[command(flatten)]
    pub output: OutputArguments,
    /// Lines of text, of 53 bytes [default: 1700000; quick: 400000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=folioswap_bench::sort::LINES_MAX))]
    pub lines: Option<u64>,
    /// Resident memory that it may have, each a comparison of its own [default: 150M,100M,60M; for
    /// other numbers of lines in proportion]
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = size::parse_limit)]
    pub limit: Vec<u64>,
    /// Threads of sort
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub parallel: u32,
    /// What sort may use before it writes to temporary files
    #[arg(short = 'S', long, value_name = "SIZE", default_value = "600M", value_parser = memory)]
    pub buffer_size: u64,
    #[command(flatten)]
    pub terms: TermsArguments,
}

/// One run; the size is in bytes.
#[derive(Args)]
pub struct SortWorkerArguments {
    #[arg(long)]
    pub input: PathBuf,
    #[arg(long)]
    pub parallel: u32,
    #[arg(long)]
    pub buffer_size: u64,
}

fn memory(text: &str) -> Result<u64, String> {
    let bytes = size::parse_swap_max(text).map_err(|error| error.to_string())?;
    if bytes < 4096 { Err("less than a page of 4096 bytes".to_owned()) } else { Ok(bytes) }
}

fn step(text: &str) -> Result<usize, String> {
    let step = size::parse_swap_max(text).map_err(|error| error.to_string())?;
    if step == 0 || step % 8 != 0 {
        return Err("not a multiple of 8 bytes, the size of a word".to_owned());
    }
    usize::try_from(step).map_err(|error| error.to_string())
}

/// The values of [`Kind`] on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KindArgument {
    /// Zeroes
    Zero,
    /// One word, other from page to page, repeated
    Same,
    /// Compresses to a half
    #[value(name = "2:1")]
    Two,
    /// Compresses to a third
    #[value(name = "3:1")]
    Three,
    /// Random bytes
    Incompressible,
}

impl From<KindArgument> for Kind {
    fn from(kind: KindArgument) -> Kind {
        match kind {
            KindArgument::Zero => Kind::Zero,
            KindArgument::Same => Kind::Same,
            KindArgument::Two => Kind::Two,
            KindArgument::Three => Kind::Three,
            KindArgument::Incompressible => Kind::Incompressible,
        }
    }
}

/// The values of [`Advice`] on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AdviceArgument {
    /// MADV_HUGEPAGE
    #[value(name = "hugepage")]
    HugePages,
    /// MADV_NOHUGEPAGE
    #[value(name = "nohugepage")]
    NoHugePages,
}

impl From<AdviceArgument> for Advice {
    fn from(advice: AdviceArgument) -> Advice {
        match advice {
            AdviceArgument::HugePages => Advice::HugePages,
            AdviceArgument::NoHugePages => Advice::NoHugePages,
        }
    }
}

/// The engine to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PeerChoice {
    /// The running kernel: memory cgroup and zram
    Kernel,
}

/// The values of [`FolioSizes`] on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SizesChoice {
    /// Pages alone
    #[value(name = "4k")]
    Only4K,
    /// 64 KiB where it can
    #[value(name = "64k")]
    Only64K,
    /// 2 MiB where it can
    #[value(name = "2m")]
    Only2M,
    /// Every size
    All,
}

impl From<SizesChoice> for FolioSizes {
    fn from(sizes: SizesChoice) -> FolioSizes {
        match sizes {
            SizesChoice::Only4K => FolioSizes::Only4K,
            SizesChoice::Only64K => FolioSizes::Only64K,
            SizesChoice::Only2M => FolioSizes::Only2M,
            SizesChoice::All => FolioSizes::All,
        }
    }
}

fn phase(name: &str) -> Result<String, String> {
    if folioswap_bench::touch::is_phase(name) {
        return Ok(name.to_owned());
    }
    Err(format!(
        "no such phase; there are {}, and -down of those that go in order",
        folioswap_bench::touch::PHASES.join(", ")
    ))
}

/// One run; the sizes are bytes.
#[derive(Args)]
pub struct WorkerArguments {
    #[arg(long)]
    pub size: u64,
    #[arg(long, value_parser = Kind::parse)]
    pub kind: Kind,
    #[arg(long, value_delimiter = ',', value_parser = phase)]
    pub phases: Vec<String>,
    #[arg(long)]
    pub threads: usize,
    #[arg(long)]
    pub touches: u64,
    #[arg(long)]
    pub writes: u64,
    #[arg(long, value_enum)]
    pub advise: Option<AdviceArgument>,
}
