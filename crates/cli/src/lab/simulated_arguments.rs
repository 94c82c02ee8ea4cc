//! The command lines of `lab contention` and `lab calibrate`.

use super::arguments::OutputArguments;
use clap::Args;
use folioswap_lab::experiments::contention;
use std::path::PathBuf;

#[derive(Args)]
#[command(after_help = "\
Each logical CPU runs the real allocator at a clock of its own, up to the next
lock; the CPU whose clock is lowest goes on, and a lock that is held has a
queue. Times come from measured costs of locks, steps and pages (`folioswap
lab calibrate`), never from the published figures. Each table says how much
changes if an assumption does: lines that move between CPUs 4 x slower,
programs without time of their own, pages that cost 4 x more outside the
allocator, and for series 4 a lock within each device, held for 1/20 or 1/10
of a page.

`--fill published` takes devices so small that before series 1 as many folios
find no room as were published: four builds, of 64 kB and of all sizes.

The costs that come with folioswap are used unless --costs names others; the
same costs give the same figures on every host.

Examples:
  folioswap lab contention --quick
  folioswap lab contention --series 1 --cpus 96 --tasks-per-job 29
        the whole published build; much memory
  folioswap lab calibrate here.json && folioswap lab contention \\
      --costs here.json --json")]
pub struct ContentionArguments {
    #[command(flatten)]
    pub output: OutputArguments,
    /// Series to simulate
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [1, 2, 4], value_parser = series)]
    pub series: Vec<u32>,
    /// Numbers of logical CPUs [default: 96,384; quick: 96]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=2048))]
    pub cpus: Option<Vec<u32>>,
    /// Tasks that each job of a build runs one after the other [default: 4; quick: 1; the published
    /// build has 29]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub tasks_per_job: Option<u32>,
    /// Sizes of series 1's device: the part of it in percent that the build needs at most, or
    /// `published`, as full as the published ones [default: 78,97,published; quick: 97,published]
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',', value_parser = fill)]
    pub fill: Option<Vec<contention::FillChoice>>,
    /// Divide the memory of series 4's tasks (2 GiB each) by this [default: 16; quick: 128]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub scale: Option<u32>,
    /// Costs to use, a file that `folioswap lab calibrate` wrote [default: those that come with
    /// folioswap]
    #[arg(long, value_name = "FILE")]
    pub costs: Option<PathBuf>,
}

fn fill(text: &str) -> Result<contention::FillChoice, String> {
    if text == "published" {
        return Ok(contention::FillChoice::Published);
    }
    let percent = text.parse().ok().filter(|percent| (5..=100).contains(percent));
    percent.map(contention::FillChoice::Peak).ok_or_else(|| "5 to 100, or published".to_owned())
}

fn series(text: &str) -> Result<u32, String> {
    let number: Option<u32> = text.parse().ok();
    let known = number.filter(|number| contention::Series::by_number(*number).is_some());
    known.ok_or_else(|| "there is a simulation of series 1, 2 and 4".to_owned())
}

#[derive(Args)]
#[command(after_help = "\
Measures, in some seconds: a lock taken and dropped, its line moved between
two processors, and the allocator's steps (lists, slots looked at, taken and
freed, tables). As root, on a kernel with zram, pages are the kernel's own:
system time per page of madvise(MADV_PAGEOUT) to a zram device of 64 MiB, and
of the faults that bring it back; the device is removed. Else they are codec
and faults of this process, and the file says so. Let nothing else run
meanwhile.

Examples:
  folioswap lab calibrate                  (print)
  sudo folioswap lab calibrate here.json
        write a file for `folioswap lab contention --costs`")]
pub struct CalibrateArguments {
    /// Where to write the costs [default: standard output]
    pub file: Option<PathBuf>,
}
